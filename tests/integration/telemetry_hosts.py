"""Agents with their telemetry and their HTTP surface, on an in-process mesh and runtime. Rounds are made by hand."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer

from agentd.core.telemetry_blob import CardNow
from agentd.data_dir import DataDir, Identity
from agentd.gpu.base import Gpu
from agentd.http.app import make_app
from agentd.http.context import Api
from agentd.join import JoinDesk
from agentd.log_service import LogService
from agentd.telemetry.wiring import make_telemetry
from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.memory_hosts import MemoryHost, State
from tests.integration.served_api import AUTH, TOKEN
from tests.unit.tfevents.event_bytes import scalar, version


class Cards:
    """util of every card, as the test says; None is N/A."""

    backend = "nvml"
    faults: Mapping[str, str] = {}
    state = "cards of a test"

    def __init__(self, uuids: Sequence[str]) -> None:
        self.uuids, self.util = uuids, 0.0

    def inventory(self) -> Sequence[Gpu]:
        return [Gpu(uuid, "H100", 1, at) for at, uuid in enumerate(self.uuids)]

    def sample(self, cpu_percent: Mapping[str, float | None]) -> Sequence[CardNow]:
        return [CardNow(uuid, self.util, 1000, 50, 300.0) for uuid in self.uuids]

    def close(self) -> None:
        pass


class TelemetryAgent:
    def __init__(self, host: MemoryHost, server: TestServer, telemetry: Any, cards: Cards, logs: LogService) -> None:
        self.host, self.server, self.telemetry, self.cards, self.logs = host, server, telemetry, cards, logs
        self.address = f"127.0.0.1:{server.port}"

    async def round(self) -> None:
        seen = await self.host.runtime.list()
        self.telemetry.look(seen)
        self.logs.look(seen)
        await self.telemetry.round(time.monotonic())

    async def get(self, path: str) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession(headers=AUTH) as session,
            session.get(f"http://{self.address}{path}") as response,
        ):
            return response.status, await response.json()

    async def submit(self, document: Any) -> str:
        async with (
            aiohttp.ClientSession(headers=AUTH) as session,
            session.post(f"http://{self.address}/api/v1/task-groups", json=document) as response,
        ):
            return str((await response.json())["group_id"])

    async def value(self, path: str) -> Any:
        status, value = await self.get(path)
        assert status == 200, value
        return value


class TelemetryMesh:
    def __init__(self, mesh: MemoryMesh, state: State, agents: list[TelemetryAgent], directory: Path) -> None:
        self.mesh, self.state, self.agents, self.directory = mesh, state, agents, directory

    async def rounds(self, times: int = 1) -> None:
        for _ in range(times):
            for agent in self.agents:
                await agent.round()

    async def run_group(self, n_nodes: int = 2, **training: Any) -> str:
        """A group that runs, rank 0 on the first agent."""
        return await self.start(await self.state.submit(n_nodes, **training), n_nodes)

    async def start(self, group_id: str, n_nodes: int) -> str:
        await self.state.bind(group_id, [agent.host.node for agent in self.agents[:n_nodes]])
        await self.state.until(group_id, lambda _, tasks: all(task["status"] == "claimed" for task in tasks))
        await self.state.start(group_id)
        await self.state.until(group_id, lambda group, _: group["status"] == "running")
        return group_id

    def events(self, group: int = 1, *points: tuple[int, float, float], tag: str = "loss", file: int = 1) -> None:
        """`(step, wall, value)` into the TensorBoard log of the group of that number."""
        logs = self.directory / f"ckpt-{group}" / "tb_logs"
        logs.mkdir(parents=True, exist_ok=True)
        path = logs / f"events.out.tfevents.170000000{file}.h.1.0"
        fresh = not path.exists()
        with path.open("ab") as out:
            out.write((version() if fresh else b"") + b"".join(scalar(tag, s, v, wall=w) for s, w, v in points))


@asynccontextmanager
async def telemetry_mesh(
    directory: Path, script: Any, nodes: int = 2, stall_after_s: float = 0.5, stall_fails_after_s: float = 0.0
) -> AsyncIterator[TelemetryMesh]:
    mesh = MemoryMesh(node="n1")
    agents: list[TelemetryAgent] = []
    opened: list[Any] = []
    async with aiohttp.ClientSession(headers=AUTH) as session:
        try:
            for at in range(1, nodes + 1):
                name = f"n{at}"
                host = await MemoryHost(mesh, name, directory, script).start()
                data = DataDir.open(directory / name / "data")
                identity = Identity(
                    name, f"uid-{name}", cluster_id="c", epoch=1, profile="fast", role="founder", voters_wanted=1
                )
                api = Api(name, JoinDesk(data, identity, None), lambda: {"status": "ok"}, mesh)
                api.logs = LogService(name, host.runtime.log_dir, host.feed.status_of, session)
                cards = Cards(host.cards)
                api.telemetry = telemetry = make_telemetry(
                    name,
                    mesh,
                    session,
                    host.feed,
                    host.runtime,
                    cards,
                    data.root / "telemetry.db",
                    0.05,
                    stall_after_s,
                    stall_fails_after_s=stall_fails_after_s,
                )
                server = TestServer(make_app(api, TOKEN, "127.0.0.1"))
                await server.start_server()
                opened.append((host, data, server, telemetry))
                agents.append(TelemetryAgent(host, server, telemetry, cards, api.logs))
                await _tell_address(mesh, host, agents[-1].address)
            yield TelemetryMesh(mesh, State(mesh, directory), agents, directory)
        finally:
            for host, data, server, telemetry in opened:
                await host.stop()
                await server.close()
                await telemetry.history.close()
                data.close()


async def _tell_address(mesh: MemoryMesh, host: MemoryHost, address: str) -> None:
    outcome = await mesh.propose(
        command(
            "RegisterNode", node_id=host.node, uid=f"uid-{host.node}", api_addr=address, voter_addr=None,
            gpus=[{"uuid": c, "type": "H100", "memory_mb": 1, "index": i} for i, c in enumerate(host.cards)],
            gpu_backend="nvml", runtime="memory", labels={}, version="0", cpus=1, memory_mb=1,
        )
    )  # fmt: skip
    assert outcome["ok"], outcome
