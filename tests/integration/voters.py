"""Real voter processes on a loopback address of their own, for tests."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from mesh.client import VoterClient
from schemas.commands import command
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token for tests"
PORT = 7461


async def grows(size: Callable[[], int], by: int, timeout_s: float, what: str = "") -> None:
    goal = size() + by
    await eventually(what, lambda: size() >= goal, timeout_s)


class Voters:
    """entry: the module or script each process runs; a test's own one may put a faulty disk beneath."""

    def __init__(
        self, base: Path, count: int, profile: str = "fast", entry: tuple[str, ...] = ("-m", "mesh.voter")
    ) -> None:
        self.base, self.count, self._profile, self._entry = base, count, profile, entry
        self.host = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.clients: list[VoterClient] = []
        (base / "token").write_text(TOKEN)
        voters = [
            {"raft_id": n, "node": f"n{n}", "voter_addr": self.address(n), "api_addr": f"{self.host}:{8000 + n}"}
            for n in self.ids
        ]
        self.roster: dict[str, Any] = {"cluster_id": "cluster-t", "epoch": 1, "voters": voters}
        for n in self.ids:
            self.directory(n).mkdir(mode=0o700)
            (self.directory(n) / "roster.json").write_text(json.dumps(self.roster))

    @property
    def ids(self) -> range:
        return range(1, self.count + 1)

    def directory(self, n: int) -> Path:
        return self.base / f"voter-{n}"

    def address(self, n: int) -> str:
        return f"{self.host}:{PORT + n}"

    def log(self, n: int) -> str:
        return (self.base / f"voter-{n}.log").read_text()

    def arguments(self, n: int) -> list[str]:
        directory = self.directory(n)
        return [
            "--data-dir", str(directory), "--raft-id", str(n), "--roster", str(directory / "roster.json"),
            "--listen", self.address(n), "--token-file", str(self.base / "token"), "--profile", self._profile,
        ]  # fmt: skip

    def start(self, n: int, *more: str, **popen: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **popen.pop("env", {})}
        with (self.base / f"voter-{n}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *self._entry, *self.arguments(n), *more],
                cwd=ROOT,
                stderr=log,
                env=environment,
                **popen,
            )
        self.processes[n] = process
        return process

    def start_all(self) -> None:
        for n in self.ids:
            self.start(n)

    def kill(self, n: int, number: int = signal.SIGKILL) -> int:
        process = self.processes[n]
        process.send_signal(number)
        return process.wait(10)

    def client(self, *order: int, sockets: bool = True) -> VoterClient:
        """A client that prefers the voters in this order."""
        ways = [str(self.directory(n) / "voter.sock") if sockets else self.address(n) for n in order or self.ids]
        client = VoterClient(ways, TOKEN)
        self.clients.append(client)
        return client

    async def leader(self, timeout_s: float = 15.0) -> int:
        """The voter that says it leads and that a majority follows."""

        async def find() -> int:
            votes: dict[int, int] = {}
            for n, process in self.processes.items():
                if process.poll() is None and (self.directory(n) / "voter.sock").exists():
                    client = VoterClient([str(self.directory(n) / "voter.sock")], TOKEN)
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(1.0):
                            status = await client.status()
                            votes[status["leader"]] = votes.get(status["leader"], 0) + 1
                    await client.close()
            return next((who for who, n in votes.items() if who and n > self.count // 2), 0)

        found: int = await eventually("a leader", find, timeout_s)
        return found

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.asynccontextmanager
async def voters(base: Path, count: int, **more: Any) -> AsyncIterator[Voters]:
    mesh = Voters(base, count, **more)
    try:
        yield mesh
    finally:
        await mesh.close()


def requests(client: str = "test") -> Iterator[dict[str, str]]:
    """Request fields, each with an id of its own."""
    number = 0
    while True:
        number += 1
        yield {"client": client, "id": f"request-{number}", "digest": "d"}


def init(roster: dict[str, Any], profile: str = "fast") -> dict[str, Any]:
    return command(
        "InitCluster", cluster_id=roster["cluster_id"], epoch=roster["epoch"], profile=profile, voters=roster["voters"]
    )


def register(node: str, uid: str = "u1", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "node_id": node, "uid": uid, "api_addr": "127.0.0.1:1", "voter_addr": None, "gpus": [], "gpu_backend": "none",
        "runtime": "memory", "labels": {}, "version": "1", "cpus": 1, "memory_mb": 1,
    }  # fmt: skip
    return command("RegisterNode", **{**fields, **more})
