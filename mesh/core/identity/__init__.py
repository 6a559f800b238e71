"""Who is who in a mesh with certificates: names in them, join tokens, and what the mesh CA has given out. Pure."""
