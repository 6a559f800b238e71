"""TLS of one node: `ca.pem`, `node.pem` (key and certificate) and `revoked.pem` in a directory of its own.

`refresh` takes up files that have changed: new connections use the new certificate, and what a revoked node still has
open is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import (
    ClientHandlerType,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientWebSocketResponse,
    TCPConnector,
    web,
)

from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import (
    belongs_to,
    der_signed_by,
    issue,
    new_ca,
    new_key,
    read_certificate,
    read_der,
    read_revocations,
    signed_by,
    signing_request,
    split,
    utc_now,
)
from mesh.security.node_certificate import BadCertificate, NodeCertificate, Revoked
from mesh.security.wire import listen
from schemas.errors import NotAuthorised

HANDSHAKE_S = 5.0
"""A caller that takes longer is cut: two round trips and a signature take well under a second."""
_SHUTDOWN_S = 2.0
_SECURE = {"http": "https", "ws": "wss"}

_logger = logging.getLogger("heteroflow.tls")


class IdentityDamaged(Exception):
    """Raised when the files do not fit together: says which, and what to do."""


class MeshTls:
    secure = True

    def __init__(self, directory: Path) -> None:
        """Raises IdentityDamaged. Without a certificate it can listen, and nobody has reason to trust it."""
        self.directory = directory
        self.ca = b""
        self.own: NodeCertificate | None = None
        self.authority = ""
        self.revoked = Revoked(0, frozenset())
        self._servers: list[ssl.SSLContext] = []
        self._client: ssl.SSLContext | None = None
        self._marks: dict[str, tuple[int, int, int]] = {}
        self._open: WeakKeyDictionary[Any, tuple[NodeCertificate, bytes]] = WeakKeyDictionary()
        self._cutting: set[asyncio.Task[bool]] = set()
        self._refresh(first=True)

    # authority: the fingerprint of the CA that signed its own certificate.

    @property
    def joined(self) -> bool:
        return self.own is not None

    @property
    def in_force(self) -> bool:
        """Whether the others take this node's certificate, as far as it can know."""
        own = self.own
        return own is not None and own.not_after > utc_now() and own.serial not in self.revoked.serials

    # -- files

    def refresh(self) -> bool:
        """Whether anything new was taken up. Files that are wrong are said in the log, and what was valid goes on."""
        try:
            return self._refresh()
        except IdentityDamaged as error:
            _logger.error("%s; going on with what was read before", error)
            return False

    def _refresh(self, first: bool = False) -> bool:
        """Raises IdentityDamaged."""
        changed = [name for name in ("ca.pem", "node.pem", "revoked.pem") if self._changed(name)]
        if "node.pem" in changed or "ca.pem" in changed:
            self._read_certificate()
        if "revoked.pem" in changed or first:
            self._read_revocations()
        return bool(changed)

    def _changed(self, name: str) -> bool:
        try:
            info = os.stat(self.directory / name)
        except FileNotFoundError:
            return False
        mark = (info.st_ino, info.st_mtime_ns, info.st_size)
        if self._marks.get(name) == mark:
            return False
        self._marks[name] = mark
        return True

    def _read_certificate(self) -> None:
        path = self.directory / "node.pem"
        try:
            ca = (self.directory / "ca.pem").read_bytes()
            pem = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise IdentityDamaged(f"{self.directory} cannot be read: {error.strerror}") from error
        before, self.ca = self.ca, ca
        if not pem:
            return
        rejoin = "take it from a backup, or join again with a join token"
        try:
            if not belongs_to(pem, pem):
                raise IdentityDamaged(f"{path} holds a certificate of another key; {rejoin}")
            authority = next((one for one, by in split(ca).items() if signed_by(pem, by)), None)
            if authority is None:
                raise IdentityDamaged(f"{path} holds a certificate of another mesh than {path.parent}/ca.pem; {rejoin}")
            own = read_certificate(pem)
            for context in (*self._servers, *([self._client] if self._client else ())):
                context.load_cert_chain(path)
                context.load_verify_locations(cadata=ca.decode("ascii"))
        except (BadCertificate, ssl.SSLError, UnicodeDecodeError) as error:
            raise IdentityDamaged(f"{path}: {error}; {rejoin}") from error
        self.own, self.authority = own, authority
        if set(split(before) if before else ()) - set(split(ca)):
            self._believe_less()

    def _believe_less(self) -> None:
        """A context cannot forget a CA: calls get a new one, and whoever calls is judged by `_shown`."""
        self._client = None
        for end, (certificate, der) in list(self._open.items()):
            if not der_signed_by(der, self.ca):
                _logger.warning("cutting a connection with %s: its CA is not believed any more", certificate.name.node)
                self._cut(end)

    def _read_revocations(self) -> None:
        path = self.directory / "revoked.pem"
        try:
            listed = read_revocations(path.read_bytes(), self.ca)
        except FileNotFoundError:
            return
        except (OSError, BadCertificate) as error:
            raise IdentityDamaged(f"{path}: {error}; remove it, and it is fetched again") from error
        if listed.number < self.revoked.number:
            return
        self.revoked = listed
        for end, (certificate, _) in list(self._open.items()):
            if certificate.serial in listed.serials:
                _logger.warning("cutting a connection with %s: its certificate is revoked", certificate.name.node)
                self._cut(end)

    def _cut(self, end: Any) -> None:
        if isinstance(end, ClientWebSocketResponse):
            task = asyncio.get_running_loop().create_task(end.close())
            self._cutting.add(task)
            task.add_done_callback(self._cutting.discard)
        else:
            end.abort()

    # -- contexts

    def server_context(self, nodes_only: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED if nodes_only else ssl.CERT_OPTIONAL
        if self.own is not None:
            context.load_cert_chain(self.directory / "node.pem")
            context.load_verify_locations(cadata=self.ca.decode("ascii"))
        else:
            _load_placeholder(context)
        self._servers.append(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self, anonymous: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=self.ca.decode("ascii"))
        if self.own is not None and not anonymous:
            context.load_cert_chain(self.directory / "node.pem")
        return context

    # -- what Wire asks

    def session(
        self,
        limit: int = 100,
        keepalive_s: float = 15.0,
        any_address: bool = False,
        anonymous: bool = False,
        **options: Any,
    ) -> ClientSession:
        """any_address: a host of this mesh will do, whatever it was called: for a host that knows no more yet.
        anonymous: shows no certificate."""
        connector: TCPConnector
        if any_address or anonymous:
            context = self._new_client(anonymous)
            context.check_hostname = not any_address
            connector = TCPConnector(limit=limit, keepalive_timeout=keepalive_s, ssl=context)
        else:
            connector = _Connector(self.client_context, limit=limit, keepalive_timeout=keepalive_s)
        return ClientSession(connector=connector, middlewares=(_over_tls,), **options)

    async def listen(
        self,
        runner: web.AppRunner,
        host: str | None = None,
        port: int | None = None,
        sock: socket.socket | None = None,
        nodes_only: bool = False,
    ) -> asyncio.Server:
        return await listen(
            runner,
            host,
            port,
            sock,
            ssl=self.server_context(nodes_only),
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=_SHUTDOWN_S,
        )

    def caller(self, request: web.BaseRequest) -> NodeCertificate | None:
        transport = request.transport
        return self._shown(transport) if transport is not None else None

    def check_voter(self, socket: ClientWebSocketResponse, node: str | None = None) -> None:
        try:
            shown = self._shown(socket)
        except NotAuthorised as error:
            raise ConnectionError(error.problem.message) from error
        if shown is None or not shown.name.voter or node not in (None, shown.name.node):
            who = "nobody known" if shown is None else shown.name.node
            raise ConnectionError(f"the certificate there is of {who}, not of the voter {node or 'that was meant'}")

    def _shown(self, end: Any) -> NodeCertificate | None:
        """By the other side of a transport or a WebSocket, whose chain OpenSSL has checked. Raises NotAuthorised."""
        seen = self._open.get(end)
        if seen is not None:
            known = seen[0]
        else:
            ssl_object = end.get_extra_info("ssl_object")
            der = ssl_object.getpeercert(binary_form=True) if ssl_object is not None else None
            if der is None or self.own is None:
                return None
            try:
                known = read_der(der)
                believed = der_signed_by(der, self.ca)
            except BadCertificate as error:
                raise _refused(f"the certificate shown names no node ({error})") from error
            if not believed:
                raise _refused(f"the certificate of {known.name.node} is from a CA that is not believed any more")
            self._open[end] = known, der
        if self.own is None or known.name.cluster_id != self.own.name.cluster_id:
            raise _refused(f"the certificate shown is of mesh {known.name.cluster_id}")
        if known.serial in self.revoked.serials:
            raise _refused(f"the certificate of {known.name.node} is revoked")
        if known.not_after <= utc_now():
            raise _refused(f"the certificate of {known.name.node} has expired")
        return known


class _Connector(TCPConnector):
    """Asks for the context with each connection: the one it was made with may believe a CA that was given up since."""

    def __init__(self, context: Callable[[], ssl.SSLContext], **options: Any) -> None:
        super().__init__(ssl=context(), **options)
        self._newest = context

    def _get_ssl_context(self, req: ClientRequest) -> ssl.SSLContext | None:
        return self._newest() if super()._get_ssl_context(req) is not None else None


def _refused(message: str) -> NotAuthorised:
    return NotAuthorised("certificate_refused", message, "join that host again with a join token of this mesh")


async def _over_tls(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Nothing leaves a mesh with TLS in clear, whatever the caller wrote."""
    request.url = request.url.with_scheme(_SECURE.get(request.url.scheme, request.url.scheme))
    return await handler(request)


def _load_placeholder(context: ssl.SSLContext) -> None:
    """A certificate that nobody trusts, so that a host that has not joined yet can say so over TLS."""
    key = new_key()
    now = utc_now()
    ca = new_ca(key, "none", now)
    pem = issue(key, ca, signing_request(key, "not-joined"), NodeName("none", "not-joined"), (), now)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file, contextlib.suppress(FileNotFoundError):
        file.write(key + pem)
        file.flush()
        context.load_cert_chain(file.name)
