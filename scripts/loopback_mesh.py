"""A mesh of agents on this machine, each on a loopback address of its own, for scripts/try and the benches.

Nodes are told apart by address (127.A.B.1, .2, ...), so they may use the same ports, as hosts do.
"""

import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

API_PORT, VOTER_PORT = 7460, 7461
START_S = 40.0
STOP_S = 12.0
POLL_S = 0.1


class MeshTrouble(Exception):
    """Is raised when the mesh does not do what it should; the text says what it said last."""


@dataclass(frozen=True)
class Api:
    """JSON over HTTP to one agent."""

    address: str
    token: str
    ca_file: Path | None = None
    """Of a mesh with TLS."""

    def call(self, method: str, path: str, body: Any = None, timeout_s: float = 20.0) -> Any:
        return json.loads(self._send(method, path, body, timeout_s))

    def lines(self, path: str, timeout_s: float = 20.0) -> list[Any]:
        """An answer of one JSON object a line."""
        return [json.loads(line) for line in self._send("GET", path, None, timeout_s).splitlines()]

    @property
    def scheme(self) -> str:
        return "http" if self.ca_file is None else "https"

    def _send(self, method: str, path: str, body: Any, timeout_s: float) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.scheme}://{self.address}/api/v1{path}", data=data, method=method, headers=headers
        )
        try:
            context = ssl.create_default_context(cafile=self.ca_file) if self.ca_file is not None else None
            with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise MeshTrouble(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None
        except (OSError, ValueError) as error:
            raise MeshTrouble(f"{method} {path} at {self.address}: {error}") from error


def free_network() -> str:
    """A `127.A.B.` prefix whose first address has both ports free."""
    while True:
        prefix = f"127.{random.randint(16, 254)}.{random.randint(1, 254)}."
        try:
            for port in (API_PORT, VOTER_PORT):
                socket.create_server((prefix + "1", port)).close()
        except OSError:
            continue
        return prefix


def processes_of(directory: Path) -> list[int]:
    """Live processes that carry the directory in their arguments or environment: those of its mesh, and their tasks."""
    mark = os.fsencode(directory) + b"/"
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "cmdline").read_bytes() or mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


@dataclass
class LoopbackMesh:
    directory: Path
    nodes: int = 3
    voters: int = 3
    gpus: str = "simulated:2xH100"
    profile: str = "fast"
    runtime: tuple[str, ...] = ("--runtime", "process")
    prefix: str = field(default_factory=free_network)
    guards: list[subprocess.Popen[bytes]] = field(default_factory=list)
    tls: bool = False
    flags: tuple[str, ...] = ()
    """More, for the agent of every node."""

    def data_dir(self, node: int) -> Path:
        return self.directory / f"node-{node}"

    def address(self, node: int) -> str:
        return f"{self.prefix}{node}:{API_PORT}"

    @property
    def token_file(self) -> Path:
        return self.data_dir(1) / "token"

    def api(self, node: int = 1) -> Api:
        return Api(self.address(node), self.token_file.read_text().strip(), self.ca_file)

    @property
    def ca_file(self) -> Path | None:
        return self.data_dir(1) / "tls" / "ca.pem" if self.tls else None

    @property
    def join_token_file(self) -> Path:
        """What further hosts bring: made once, good for all of them, where there is TLS."""
        path = self.directory / "join-token"
        if not path.exists():
            flags = ["--data-dir", str(self.data_dir(1)), "--uses", "100", "--out", str(path)]
            subprocess.run(
                [sys.executable, "-m", "agentd.cli", "token", "create", *flags], check=True, capture_output=True
            )
        return path

    def _command(self, node: int) -> list[str]:
        command = [sys.executable, "-m", "agentd.cli", "guard", "--data-dir", str(self.data_dir(node))]
        command += ["--name", f"node-{node}", "--api", self.address(node)]
        command += ["--voter", f"{self.prefix}{node}:{VOTER_PORT}", "--gpus", self.gpus, *self.runtime]
        command += ["--allow-path", str(self.directory), *self.flags]
        if node == 1:
            command += ["--bootstrap", "--voters", str(self.voters), "--profile", self.profile]
            return [*command, "--tls", "on"] if self.tls else command
        token_file = self.join_token_file if self.tls else self.token_file
        return [*command, "--join", self.address(1), "--token-file", str(token_file)]

    def start(self) -> None:
        for node in range(1, self.nodes + 1):
            self.start_node(node)
            if node == 1:
                made = self.data_dir(1) / "tls" / "node.pem" if self.tls else self.token_file
                self._await("the first agent to make the mesh token", made.is_file)
        self._await(f"{self.nodes} nodes to be ready", lambda: self.ready_nodes() == self.nodes)

    def start_node(self, node: int) -> None:
        """Its guard, again where it has ended."""
        with (self.directory / f"node-{node}.out").open("ab") as output:
            guard = subprocess.Popen(
                self._command(node), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.guards[node - 1 : node] = [guard]

    def ready_nodes(self) -> int:
        try:
            listed = self.api().call("GET", "/nodes", timeout_s=2.0)
        except MeshTrouble:
            return 0
        return sum(node["state"] == "ready" for node in listed["nodes"])

    def _await(self, what: str, true: Any) -> None:
        deadline = time.monotonic() + START_S
        while not true():
            for node, guard in enumerate(self.guards, start=1):
                if guard.poll() is not None:
                    raise MeshTrouble(
                        f"the guard of node-{node} ended with {guard.returncode}: {self.last_words(node)}"
                    )
            if time.monotonic() > deadline:
                raise MeshTrouble(f"waited {START_S:g} s for {what}: {self.last_words(1)}")
            time.sleep(POLL_S)

    def last_words(self, node: int) -> str:
        files = [self.directory / f"node-{node}.out", *sorted((self.data_dir(node) / "log").glob("*.log"))]
        tails = [f"{path.name}: {line}" for path in files if path.is_file() for line in _tail(path, 5)]
        return "\n  ".join(["it said", *tails])

    def stop(self) -> None:
        """Ends every process of this mesh, tasks included; raises MeshTrouble when one outlives a SIGKILL."""
        for guard in self.guards:
            guard.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for guard in self.guards:
            try:
                guard.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                guard.kill()
                guard.wait()
        for left in self._sweep():
            raise MeshTrouble(f"process {left} of the mesh in {self.directory} cannot be ended")

    def _sweep(self) -> list[int]:
        deadline = time.monotonic() + STOP_S
        while (left := processes_of(self.directory)) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(POLL_S)
        return left


def _tail(path: Path, lines: int) -> Iterator[str]:
    yield from path.read_text(errors="replace").splitlines()[-lines:]
