"""How this side trusts a mesh: its CA and nothing else."""

import ssl

from schemas.errors import InvalidInput


def trusting(ca_file: str) -> ssl.SSLContext:
    """Raises InvalidInput(bad_ca_file)."""
    hint = "It is a copy of D/tls/ca.pem of any agent of the mesh."
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cafile=ca_file)
    except ssl.SSLError as error:
        raise InvalidInput("bad_ca_file", f"{ca_file} holds no certificate", hint, "--ca-file") from error
    except OSError as error:
        raise InvalidInput("bad_ca_file", f"{ca_file} cannot be read: {error.strerror}", hint, "--ca-file") from error
    return context
