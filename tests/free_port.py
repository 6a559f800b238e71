"""A port that nothing listens on, until somebody takes it."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as held:
        return int(held.getsockname()[1])
