"""A host's certificate: the mesh CA on the host that has it, joining with a token, renewal and revocation."""
