"""One real agent with a voter in a mesh with TLS, and whoever wants to be somebody in it.

The test may sign with the mesh CA's key: what is refused is then refused for what it says, not for who signed it."""

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp

from agentd.identity.ca_desk import CaDesk
from mesh.core.identity.join_token import JoinToken
from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import NODE_LIFE, issue, new_ca, new_key, signing_request, utc_now
from scripts.loopback_mesh import LoopbackMesh

TIMEOUT = aiohttp.ClientTimeout(total=15.0)


@dataclass(frozen=True)
class Answer:
    status: int
    value: Any

    @property
    def code(self) -> str:
        return str(self.value.get("code", "")) if isinstance(self.value, dict) else ""


@dataclass
class Somebody:
    """key and certificate in one file; None comes without. trusts: the CA it holds for right, None for any."""

    pem: Path | None
    trusts: Path | None

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.trusts is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            context.load_verify_locations(self.trusts)
        if self.pem is not None:
            context.load_cert_chain(self.pem)
        return context

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        made: list[socket.socket] = []

        def make(address: Any) -> socket.socket:
            family, kind, protocol, _, _ = address
            made.append(socket.socket(family, kind, protocol))
            return made[-1]

        connector = aiohttp.TCPConnector(ssl=self.context(), socket_factory=make)
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
            yield session
        # A session is closed before its sockets are: TLS says goodbye first.
        async with asyncio.timeout(20):
            while any(one.fileno() >= 0 for one in made):  # noqa: ASYNC110 - a socket tells nobody that it closes
                await asyncio.sleep(0.005)

    async def call(self, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        async with self.session() as session, session.request(method, url, json=body, headers=headers) as response:
            raw = await response.read()
        with contextlib.suppress(ValueError):
            return Answer(response.status, json.loads(raw))
        return Answer(response.status, raw)


class TlsHost:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mesh = LoopbackMesh(directory, 1, 1, gpus="none", tls=True)
        self._made = 0

    @property
    def data(self) -> Path:
        return self.mesh.data_dir(1)

    @property
    def ca_file(self) -> Path:
        return self.data / "tls" / "ca.pem"

    @property
    def ca(self) -> CaDesk:
        return CaDesk(self.data / "ca")

    @property
    def api(self) -> str:
        return f"https://{self.mesh.address(1)}"

    @property
    def voter(self) -> str:
        return self.api.replace(":7460", ":7461")

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def nobody(self) -> Somebody:
        return Somebody(None, self.ca_file)

    def signed(self, name: NodeName, made: timedelta = timedelta(0), life: timedelta = NODE_LIFE) -> Somebody:
        """A certificate by the mesh CA of which its ledger knows nothing."""
        key = new_key()
        request = signing_request(key, name.node)
        ca_key = (self.data / "ca" / "ca.key").read_bytes()
        hosts = (self.mesh.address(1).rpartition(":")[0],)
        pem = issue(ca_key, self.ca.certificate, request, name, hosts, utc_now() + made, life)
        return self._kept(key + pem)

    def admitted(self, node: str, voter: bool = False) -> Somebody:
        """As a host that joined."""
        key = new_key()
        token = self.ca.new_token(1, 600)
        name = NodeName(self.ca.cluster_id, node, voter)
        pem = self.ca.admit(token, signing_request(key, node), name, f"uid-{node}", ())
        return self._kept(key + pem)

    def foreign(self, name: NodeName) -> Somebody:
        """From a CA that calls itself like ours."""
        ca_key, key = new_key(), new_key()
        ca = new_ca(ca_key, name.cluster_id, utc_now())
        return self._kept(key + issue(ca_key, ca, signing_request(key, name.node), name, (), utc_now()))

    def _kept(self, pem: bytes) -> Somebody:
        self._made += 1
        path = self.directory / f"somebody-{self._made}.pem"
        path.write_bytes(pem)
        return Somebody(path, self.ca_file)

    def set_token(self, token: JoinToken, **facts: Any) -> None:
        path = self.data / "ca" / "ledger.json"
        ledger = json.loads(path.read_text())
        next(record for record in ledger["tokens"] if record["id"] == token.id).update(facts)
        path.write_text(json.dumps(ledger))


@contextlib.contextmanager
def tls_host(directory: Path) -> Iterator[TlsHost]:
    directory.mkdir(exist_ok=True)
    host = TlsHost(directory)
    try:
        host.mesh.start()
        yield host
    finally:
        host.mesh.stop()


def agentd(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "agentd.cli", *words], capture_output=True, text=True, timeout=60)


def candidate(node: str, uid: str = "", **over: Any) -> dict[str, Any]:
    """What a host says as it joins."""
    key = over.pop("key", None) or new_key()
    return {
        "node_id": node,
        "uid": uid or f"uid-{node}",
        "api_addr": f"127.9.9.{len(node)}:7460",
        "voter_addr": f"127.9.9.{len(node)}:7461",
        "cluster_id": "",
        "profile": "",
        "request": signing_request(key, node).decode(),
        **over,
    }
