"""What TLS costs: requests and commits a second of a mesh with it, beside one without, at the same time on one machine.

Two meshes of three agents. Requests are small reads of the API over connections that are kept. Commits are 500-byte
commands that the leader's voter replicates to the two others: from its own host, by its socket, so that TLS is between
the voters alone; and from another host, so that it is on the client's session too. Rounds alternate, because disk
and machine drift; a ratio is the median of the rounds' ratios. What a new connection costs is told beside them.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from mesh.client import VoterClient
from mesh.security.mesh_tls import MeshTls
from mesh.security.wire import PlainWire
from scripts.benches.consensus import load, summary
from scripts.loopback_mesh import VOTER_PORT, LoopbackMesh, MeshTrouble

ROUNDS = int(os.environ.get("HF_BENCH_ROUNDS", "7"))
SECONDS = float(os.environ.get("HF_BENCH_SECONDS", "2"))
READERS, PROPOSERS = 16, 16
LOWEST = 0.7
KINDS = ("plain", "tls")


class Bed:
    """One of the two meshes, with a client of its API and one of its leader's voter."""

    def __init__(self, directory: Path, tls: bool) -> None:
        directory.mkdir()
        self.mesh = LoopbackMesh(directory, 3, 3, gpus="none", profile="lan", tls=tls)

    def wire(self) -> MeshTls | PlainWire:
        return MeshTls(self.mesh.data_dir(2) / "tls") if self.mesh.tls else PlainWire()

    def session(self, **options: Any) -> aiohttp.ClientSession:
        token = self.mesh.token_file.read_text().strip()
        wire = self.wire()
        return wire.session(limit=READERS, headers={"Authorization": f"Bearer {token}"}, **options)

    @property
    def url(self) -> str:
        return f"http://{self.mesh.address(2)}/api/v1/nodes?consistency=stale"

    def leader(self) -> int:
        seen = self.mesh.api(2).call("GET", "/mesh")
        names = [v["node"] for v in seen["voters"] if v["raft_id"] == seen["consensus"]["leader"]]
        if not names:
            raise MeshTrouble("the mesh has no leader")
        return int(names[0].removeprefix("node-"))

    def voter_client(self, own_host: bool) -> VoterClient:
        leader = self.leader()
        socket = str(self.mesh.data_dir(leader) / "voter" / "voter.sock")
        address = f"{self.mesh.prefix}{leader}:{VOTER_PORT}"
        token = self.mesh.token_file.read_text().strip()
        return VoterClient([socket if own_host else address], token, wire=self.wire())


async def requests(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    took: list[float] = []
    begun = time.perf_counter()
    until = begun + SECONDS

    async def reader() -> None:
        while (at := time.perf_counter()) < until:
            async with session.get(url) as response:
                await response.read()
                if response.status != 200:
                    raise MeshTrouble(f"a read was answered {response.status}")
            took.append((time.perf_counter() - at) * 1000)

    await asyncio.gather(*(reader() for _ in range(READERS)))
    return summary(took, time.perf_counter() - begun)


async def fresh_ms(bed: Bed) -> float:
    """One request on a connection of its own, the median of some."""
    took = []
    async with bed.session() as session:
        for _ in range(20):
            at = time.perf_counter()
            async with session.get(bed.url, headers={"Connection": "close"}) as response:
                await response.read()
            took.append((time.perf_counter() - at) * 1000)
    return statistics.median(took)


async def measure(beds: dict[str, Bed]) -> dict[str, Any]:
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    sessions = {kind: bed.session() for kind, bed in beds.items()}
    local = {kind: bed.voter_client(own_host=True) for kind, bed in beds.items()}
    remote = {kind: bed.voter_client(own_host=False) for kind, bed in beds.items()}
    measures: dict[str, Callable[[str], Awaitable[dict[str, float]]]] = {
        "requests": lambda kind: requests(sessions[kind], beds[kind].url),
        "commits": lambda kind: load(local[kind], PROPOSERS, SECONDS),
        "commits from another host": lambda kind: load(remote[kind], PROPOSERS, SECONDS),
    }
    try:
        for what, take in measures.items():
            rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
            for number in range(ROUNDS):
                for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                    rounds[kind].append(await take(kind))
            for kind in KINDS:
                figures[f"{kind} {what}/s"] = statistics.median(r["rate"] for r in rounds[kind])
                figures[f"{kind} {what}: p99 ms"] = statistics.median(r["p99"] for r in rounds[kind])
            pairs = zip(rounds["tls"], rounds["plain"], strict=True)
            ratios[f"{what}, tls/plain"] = statistics.median(a["rate"] / b["rate"] for a, b in pairs)
        for kind, bed in beds.items():
            figures[f"{kind}: a request on a new connection, ms"] = await fresh_ms(bed)
    finally:
        for session in sessions.values():
            await session.close()
        for client in (*local.values(), *remote.values()):
            await client.close()
    budgets = dict.fromkeys(ratios, f">= {LOWEST}")
    wrong = [f"{name} is {ratio:.2f}, below {LOWEST}" for name, ratio in ratios.items() if ratio < LOWEST]
    return {"figures": figures, "ratios": ratios, "budgets": budgets, "wrong": wrong}


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hf-tls-", dir=os.environ.get("HF_BENCH_DIR")) as base:
        beds = {kind: Bed(Path(base) / kind, kind == "tls") for kind in KINDS}
        try:
            for bed in beds.values():
                bed.mesh.start()
            return asyncio.run(measure(beds))
        finally:
            for bed in beds.values():
                bed.mesh.stop()
