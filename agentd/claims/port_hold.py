"""A port of a task, bound from claim to start so that nothing else of this host takes it."""

import errno
import socket

from agentd.core.claim import ClaimRefused


def hold_port(host: str, port: int, use: str = "rank 0's rendezvous") -> "socket.socket | ClaimRefused":
    """A bound socket that neither listens nor connects: closing it leaves no TIME_WAIT, and the task may bind at once.
    use: what it is meant for.

    It does not listen, because a peer that came early would be accepted by the kernel and then reset; refused is what
    rendezvous code retries. The first try leaves SO_REUSEADDR off, since two sockets that both set it may share a port.
    Only where connections of an earlier trainer linger in TIME_WAIT is the weaker hold taken. `host` is this node's own
    address: agents that share a machine have one each, and with it all ports.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for reuse in (False, True):
        holder = socket.socket(family, socket.SOCK_STREAM)
        try:
            if reuse:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((host, port))
            return holder
        except OSError as error:
            holder.close()
            if error.errno != errno.EADDRINUSE:
                return ClaimRefused("port_refused", f"port {port} cannot be bound on this host: {error.strerror}")
    return ClaimRefused("port_taken", f"port {port}, meant for {use}, is already used by a process of this host")
