"""How the hosts of a mesh speak to each other: one object that hands out sessions and listeners and says who calls.

Code that has a session of it writes `http://HOST:PORT/...` or `ws://...`, whatever the mesh: where there is TLS, the
session carries it over TLS and shows this node's certificate.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Protocol

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, web

from mesh.security.node_certificate import NodeCertificate

BACKLOG = 256


class Wire(Protocol):
    @property
    def secure(self) -> bool:
        """Whether callers are told apart by certificate. Otherwise the mesh token opens everything."""
        ...

    def refresh(self) -> bool:
        """Take up what has changed of this node's certificate files; whether anything had."""
        ...

    def session(self, limit: int = 100, keepalive_s: float = 15.0, **options: Any) -> ClientSession:
        """limit: connections at once, 0 for any number. keepalive_s: how long an idle one is kept. options: of
        ClientSession."""
        ...

    async def listen(
        self,
        runner: web.AppRunner,
        host: str | None = None,
        port: int | None = None,
        sock: socket.socket | None = None,
        nodes_only: bool = False,
    ) -> asyncio.Server:
        """nodes_only: whoever shows no certificate of a node is not even listened to."""
        ...

    def caller(self, request: web.BaseRequest) -> NodeCertificate | None:
        """The node that calls, proved by its certificate; None without one. Raises NotAuthorised for one that is of
        another mesh, expired or revoked."""
        ...

    def check_voter(self, socket: ClientWebSocketResponse, node: str | None = None) -> None:
        """Raises ConnectionError unless a voter (that one, if given) is at the other end."""
        ...


class PlainWire:
    """Without TLS: for a mesh on loopback, where the kernel says that both ends are this host."""

    secure = False

    def refresh(self) -> bool:
        return False

    def session(self, limit: int = 100, keepalive_s: float = 15.0, **options: Any) -> ClientSession:
        return ClientSession(connector=TCPConnector(limit=limit, keepalive_timeout=keepalive_s), **options)

    async def listen(
        self,
        runner: web.AppRunner,
        host: str | None = None,
        port: int | None = None,
        sock: socket.socket | None = None,
        nodes_only: bool = False,
    ) -> asyncio.Server:
        return await listen(runner, host, port, sock)

    def caller(self, request: web.BaseRequest) -> NodeCertificate | None:
        return None

    def check_voter(self, socket: ClientWebSocketResponse, node: str | None = None) -> None:
        return None


async def listen(
    runner: web.AppRunner, host: str | None, port: int | None, sock: socket.socket | None, **options: Any
) -> asyncio.Server:
    """Raises OSError where the address cannot be had."""
    loop = asyncio.get_running_loop()
    assert runner.server is not None
    if sock is not None:
        return await loop.create_server(runner.server, sock=sock, backlog=BACKLOG, **options)
    return await loop.create_server(runner.server, host, port, backlog=BACKLOG, reuse_address=True, **options)
