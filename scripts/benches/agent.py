"""What the platform costs a host that trains: memory and idle CPU of guard, agent and voter, after a long history."""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from mesh.client import VoterClient
from scripts.benches.submit import document
from scripts.loopback_mesh import LoopbackMesh, MeshTrouble, processes_of

GROUPS = int(os.environ.get("HF_BENCH_GROUPS", "5000"))
ENTRIES = int(os.environ.get("HF_BENCH_ENTRIES", "30000"))
IDLE_S = float(os.environ.get("HF_BENCH_IDLE_S", "30"))
SETTLE_S = 5.0
AT_ONCE = 32
LIMITS_MB = {"agent": 90.0, "voter": 70.0, "guard": 15.0}
LIMIT_IDLE_CPU = 1.5


async def fill(mesh: LoopbackMesh, directory: Path) -> None:
    """Groups that are submitted and stopped at once, then entries that change nothing, up to the count."""
    waiting = asyncio.Semaphore(AT_ONCE)
    headers = {"Authorization": f"Bearer {mesh.token_file.read_text().strip()}"}
    base = f"http://{mesh.address(1)}/api/v1/task-groups"

    async with aiohttp.ClientSession(headers=headers) as session:

        async def one(number: int) -> None:
            wanted = document(64, directory / f"never-{number}")
            async with waiting:
                async with session.post(base, json=wanted) as made:
                    made.raise_for_status()
                    group = (await made.json())["group_id"]
                async with session.post(f"{base}/{group}/stop") as stopped:
                    stopped.raise_for_status()

        await asyncio.gather(*(one(number) for number in range(GROUPS)))
    await _fill_entries(mesh, waiting)


async def _fill_entries(mesh: LoopbackMesh, waiting: asyncio.Semaphore) -> None:
    client = VoterClient([str(mesh.data_dir(1) / "voter" / "voter.sock")], mesh.token_file.read_text().strip())
    try:
        present = (await client.status())["applied"]

        async def one() -> None:
            async with waiting:
                await client.propose({"v": 1, "t": "Noop", "payload": b"x" * 64}, timeout_s=20.0)

        await asyncio.gather(*(one() for _ in range(max(0, ENTRIES - present))))
    finally:
        await client.close()


def roles(mesh: LoopbackMesh, node: int) -> dict[str, int]:
    """`{guard, agent, voter: pid}` of one node, by the arguments they were started with."""
    found = {"guard": mesh.guards[node - 1].pid}
    own = os.fsencode(mesh.data_dir(node))
    for pid in processes_of(mesh.data_dir(node)) + processes_of(mesh.directory):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if own not in words and not any(word.startswith(own + b"/") for word in words):
            continue
        if b"mesh.voter" in words:
            found["voter"] = pid
        elif b"run" in words:
            found["agent"] = pid
    return found


def resident_mb(pid: int) -> float:
    (line,) = (row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def cpu_s(pid: int) -> float:
    """From the scheduler's own count of nanoseconds: bursts shorter than a clock tick are not in /proc/PID/stat."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def start_one(mesh: LoopbackMesh, directory: Path) -> None:
    wanted = document(2, directory / "running")
    wanted["training"]["hyper_params"]["steps"] = 1_000_000
    wanted["task"]["command"] += ["--step-delay", "1000", "--log-every", "1"]
    group = mesh.api().call("POST", "/task-groups", wanted)["group_id"]
    deadline = time.monotonic() + 20.0
    while mesh.api().call("GET", f"/task-groups/{group}")["status"] != "running":
        if time.monotonic() > deadline:
            raise MeshTrouble(f"the group does not run: {mesh.last_words(1)}")
        time.sleep(0.2)


def measure(mesh: LoopbackMesh) -> dict[str, float]:
    """The worst node of each figure: the leader's is not told apart."""
    time.sleep(SETTLE_S)  # what the last submit left to do is not idling
    nodes = [roles(mesh, node) for node in range(1, mesh.nodes + 1)]
    before = [{role: cpu_s(pid) for role, pid in node.items()} for node in nodes]
    begun = time.monotonic()
    time.sleep(IDLE_S)
    elapsed = time.monotonic() - begun
    spent = [
        {role: 100 * (cpu_s(pid) - start[role]) / elapsed for role, pid in node.items()}
        for node, start in zip(nodes, before, strict=True)
    ]
    figures = {f"{role}_rss_mb": max(resident_mb(node[role]) for node in nodes) for role in LIMITS_MB}
    figures |= {f"{role}_idle_cpu_percent": max(node[role] for node in spent) for role in LIMITS_MB}
    figures["idle_cpu_percent"] = max(sum(node.values()) for node in spent)
    loaded = [Path(f"/proc/{node['agent']}/maps").read_text() for node in nodes]
    figures["agents_with_numpy"] = sum("numpy" in maps for maps in loaded)
    return figures


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="heteroflow-bench-") as place:
        directory = Path(place)
        mesh = LoopbackMesh(directory)
        try:
            mesh.start()
            begun = time.monotonic()
            asyncio.run(fill(mesh, directory))
            filled_s = time.monotonic() - begun
            start_one(mesh, directory)
            figures = measure(mesh)
        finally:
            mesh.stop()
    print(f"{GROUPS} groups and {ENTRIES} entries were made in {filled_s:.0f} s", file=sys.stderr)
    ratios = {f"{role}_rss_of_limit": figures[f"{role}_rss_mb"] / limit for role, limit in LIMITS_MB.items()}
    ratios["idle_cpu_of_limit"] = figures["idle_cpu_percent"] / LIMIT_IDLE_CPU
    return {"figures": figures, "ratios": ratios}
