"""The address of this agent's API, bound before anything else is begun."""

import errno
import socket

from agentd.config import AgentConfig, ConfigError


class AddressInUse(Exception):
    """A port of ours is taken: which, and what to do (exit code 4)."""


def listen(config: AgentConfig) -> socket.socket:
    """Raises ConfigError, AddressInUse."""
    try:
        family, _, _, _, where = socket.getaddrinfo(
            config.api.host, config.api.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"--api {config.api} cannot be bound: {error.strerror}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"{config.api} is used by another process; stop it or start this agent with another --api address"
            ) from error
        raise ConfigError(f"--api {config.api} cannot be bound: {error.strerror}") from error
    listener.listen(256)
    return listener
