"""A large mesh that stands still, served by a real agent's API, until it is told what to change.

The state is built by the product's own commands and read through the product's own feed; only consensus is missing.
`serve` is a process of its own: commands are JSON lines on its standard input, answers JSON lines on its output.
"""

import asyncio
import json
import random
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from agentd.core.quiet import Quiet
from agentd.core.telemetry_blob import CardNow, NodeNow, Progress, TaskNow, pack_node
from agentd.data_dir import DataDir, Identity
from agentd.gpu.choice import NoGpus
from agentd.http.app import make_app
from agentd.http.context import Api
from agentd.join import JoinDesk
from agentd.node_feed import NodeFeed
from agentd.runtime.memory import MemoryRuntime
from agentd.telemetry.wiring import make_telemetry
from mesh.memory import MemoryMesh
from schemas.commands import command
from schemas.task_group import accepted_task_group

TOKEN = "bench"
CARDS = 8
GANG = 6  # nodes of a running group
MINUTE_MS = 60_000
NEWEST_AGE_MS, OLDEST_AGE_MS = 5 * MINUTE_MS, 90 * MINUTE_MS  # ages in minutes
TELL_S = 5.0  # how often nodes say what they said before


def name_of(number: int) -> str:
    return f"run-{number:05d}"


def id_of(number: int) -> str:
    return f"tg-{number:020d}"


def reason(at: int, nodes: int) -> str:
    """`#at:` is how a value is known again on a screen."""
    return f"#{at}: needs 6x8 H100, {at % nodes} of {nodes} nodes fit"


class BenchMesh:
    """The first groups run, on gangs of GANG nodes, as many as fit; all others wait."""

    def __init__(self, groups: int, nodes: int, address: str) -> None:
        """address: of the one agent that answers for all nodes."""
        self.groups, self.nodes, self._address = groups, nodes, address
        self.running = min(nodes // GANG, groups // 4)
        self._now_ms = time.time_ns() // 1_000_000
        self._clock_ms = self._now_ms - OLDEST_AGE_MS
        self.mesh = MemoryMesh(node="node-00001", clock_ms=lambda: self._clock_ms)
        self._at = 0

    async def build(self) -> None:
        for number in range(1, self.nodes + 1):
            await self._propose("RegisterNode", **_node(number, self._address))
        step_ms = (OLDEST_AGE_MS - NEWEST_AGE_MS) // self.groups
        for number in range(1, self.groups + 1):
            self._clock_ms += step_ms
            await self._submit(number)
            if number <= self.running:
                await self._start(number)
            else:
                await self._reason(number)

    async def _propose(self, name: str, **fields: Any) -> dict[str, Any]:
        outcome = await self.mesh.propose(command(name, **fields))
        if not outcome["ok"]:
            raise RuntimeError(f"{name}: {outcome}")
        return outcome

    async def _submit(self, number: int) -> None:
        document, warnings = accepted_task_group(_document(number))
        fields = {"document": document, "tenant": "nlp", "user": f"user-{number % 17}", "warnings": warnings}
        await self._propose("SubmitGroup", group_id=id_of(number), resubmit_of=None, **fields)

    async def _start(self, number: int) -> None:
        group = {"group_id": id_of(number), "attempt": 1}
        nodes = self.gang(number)
        placements = [
            {"rank": rank, "node": node, "gpus": list(range(CARDS)), "port": 0 if rank else 20_001}
            for rank, node in enumerate(nodes)
        ]
        bound = await self._propose("BindGroup", **group, placements=placements)
        for kind in ("claimed", "started"):
            for rank, node in enumerate(nodes):
                report = {**group, "rank": rank, "token": bound["data"]["token"], "seq": 1 + (kind == "started")}
                await self._propose("TaskReports", node=node, uid=node, reports=[{**report, "kind": kind}])
            if kind == "claimed":
                master = {"addr": "127.0.0.1", "port": 20_001}
                await self._propose("StartGroup", **group, claimed=list(range(GANG)), master=master, resume=None)

    def gang(self, number: int) -> list[str]:
        return [_node_id((number - 1) * GANG + rank + 1) for rank in range(GANG)]

    async def _reason(self, number: int) -> int:
        self._at += 1
        said = {"code": "no_fit", "text": reason(self._at, self.nodes), "details": {"free": self._at % CARDS}}
        await self._propose("SetReasons", reasons={id_of(number): said})
        return self._at

    def waiting(self) -> list[int]:
        return list(range(self.running + 1, self.groups + 1))

    async def load(self, numbers: list[int], rate: float, seconds: float) -> dict[str, tuple[float, int]]:
        """Reasons of these groups, one row a command, chosen at random. `{name: (when, what) of its last change}`."""
        pick = random.Random(1)
        last: dict[str, tuple[float, int]] = {}
        begun = time.monotonic()
        for at in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + at / rate - time.monotonic()))
            number = pick.choice(numbers)
            made = await self._reason(number)
            last[name_of(number)] = (time.monotonic(), made)
        return last

    def telemetry(self) -> dict[str, bytes]:
        """What every node said last."""
        wall = self._now_ms / 1000 - 150
        said = {_node_id(number): _idle_node(_node_id(number)) for number in range(1, self.nodes + 1)}
        for number in range(1, self.running + 1):
            progress = Progress("loss", 1000 + number, 2.0 + number / 1000, wall, 150.0)
            for rank, node in enumerate(self.gang(number)):
                said[node] = _busy_node(node, number, rank, progress if rank == 0 else None)
        return {node: pack_node(now) for node, now in said.items()}


def _node_id(number: int) -> str:
    return f"node-{number:05d}"


def _cards(node: str) -> list[str]:
    return [f"GPU-{node}-{at}" for at in range(CARDS)]


def _node(number: int, address: str) -> dict[str, Any]:
    node = _node_id(number)
    gpus = [{"uuid": card, "type": "H100", "memory_mb": 81_920, "index": at} for at, card in enumerate(_cards(node))]
    return {
        "node_id": node,
        "uid": node,
        "api_addr": address,
        "voter_addr": None,
        "gpus": gpus,
        "gpu_backend": "nvml",
        "runtime": "process",
        "labels": {"rack": f"r{number % 40}"},
        "version": "0.1.0",
        "cpus": 128,
        "memory_mb": 1_031_000,
    }


def _document(number: int) -> dict[str, Any]:
    return {
        "name": name_of(number),
        "task_type": "training",
        "training": {
            "framework": "fsdp",
            "n_nodes": GANG,
            "per_node_gpu": CARDS,
            "gpu_type": ["H100"],
            "checkpoint_path": f"/data/ckpt/{number}",
            "hyper_params": {"lr": "3e-4", "seq_len": "8192"},
        },
        "task": {"command": ["torchrun", "train.py"], "gpu_required": CARDS},
    }


def _idle_node(node: str) -> NodeNow:
    cards = tuple(CardNow(card, 0.0, 500, 35, 90.0) for card in _cards(node))
    return NodeNow(node, False, 2.0, cards)


def _busy_node(node: str, number: int, rank: int, progress: Progress | None) -> NodeNow:
    quiet = Quiet(1.0, True)
    task = TaskNow(
        group_id=id_of(number),
        attempt=1,
        rank=rank,
        ranks=GANG,
        running=True,
        running_s=3600.0,
        cards=tuple(_cards(node)),
        cpu_percent=380.0,
        log=quiet,
        cards_quiet=(quiet,) * CARDS,
        files=None,
        processor=None,
        progress=progress,
    )
    idle = _idle_node(node)
    cards = tuple(CardNow(card.uuid, 96.0, 72_000, 61, 640.0) for card in idle.cards)
    return replace(idle, cards=cards, tasks=(task,))


async def _serve(directory: Path, groups: int, nodes: int) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    bench = BenchMesh(groups, nodes, address)
    await bench.build()
    data = DataDir.open(directory / "agent")
    identity = Identity(
        "node-00001", "node-00001", cluster_id="bench", epoch=1, profile="fast", role="founder", voters_wanted=1
    )
    api = Api("node-00001", JoinDesk(data, identity, None), lambda: {"status": "ok"}, bench.mesh)
    async with aiohttp.ClientSession() as session:
        feed = NodeFeed(bench.mesh, "node-00001", lambda: None)
        api.telemetry = make_telemetry(
            "node-00001", bench.mesh, session, feed, MemoryRuntime(), NoGpus(), directory / "telemetry.db", 2.0, 180.0
        )
        runner = web.AppRunner(make_app(api, TOKEN, "127.0.0.1"))
        await runner.setup()
        await web.SockSite(runner, listening).start()
        blobs = bench.telemetry()
        telling = asyncio.create_task(_tell(api.telemetry.desk, blobs))
        try:
            _say({"address": address})
            await _obey(bench)
        finally:
            telling.cancel()
            await runner.cleanup()
            await api.telemetry.history.close()
            data.close()


async def _tell(desk: Any, blobs: dict[str, bytes]) -> None:
    while True:
        for node, blob in blobs.items():
            desk.take(node, blob)
        await asyncio.sleep(TELL_S)


async def _obey(bench: BenchMesh) -> None:
    """`{"numbers": [...] | null, "rate": R, "seconds": S}`: null is every group that waits."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        wanted = json.loads(line)
        numbers = bench.waiting() if wanted["numbers"] is None else wanted["numbers"]
        _say({"last": await bench.load(numbers, wanted["rate"], wanted["seconds"])})


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
