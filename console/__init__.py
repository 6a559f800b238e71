"""The command line (and later the console) of HeteroFlow Mesh. It talks HTTP to any node and imports only `schemas`."""
