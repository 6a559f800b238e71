"""Agents' task side on an in-process mesh and runtime: everything above sockets and processes is the product's."""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Any

from agentd.claims.claimer import Claimer
from agentd.node_feed import NodeFeed
from agentd.rejoin import Rejoin
from agentd.reporter import Reporter
from agentd.runtime.memory import MemoryRuntime
from agentd.task_host import TaskHost
from agentd.task_plan import TaskPlan
from mesh.memory import MemoryMesh
from schemas.commands import command
from schemas.task_group import accepted_task_group

# The host of these tests is one address of this machine: two workers must not claim the same port there.
PORT = 20_001 + os.getpid() % 9_000


class MemoryHost:
    """One agent; `stop` and a new one with the same `runtime.host` is a restart. lease: what it believes of it.
    addresses: where ranks of other hosts are to look for rank 0 here."""

    def __init__(
        self,
        mesh: MemoryMesh,
        node: str,
        directory: Path,
        script: Any = None,
        host: Any = None,
        addresses: tuple[str, ...] = (),
    ) -> None:
        self.addresses = addresses
        self.mesh, self.node, self.lease = mesh, node, True
        self.runtime = MemoryRuntime(script, directory / node, host) if script else MemoryRuntime(host=host)
        self.cards = [f"{node}-gpu-{index}" for index in range(2)]
        self.feed = NodeFeed(mesh, node, lambda: self.host.wake())
        reporter = Reporter(mesh, node, f"uid-{node}")
        self.rejoin = Rejoin(mesh, self.feed, node, f"uid-{node}")
        plan = TaskPlan(self.runtime, simulated_gpus=True)
        self.claimer = Claimer(self.cards, (f"{directory}/",), directory, "127.9.7.6", self.runtime.get_image)
        self.host = TaskHost(
            self.feed, self.runtime, self.claimer, reporter, lambda: self.lease,
            plan.claim_request, plan.task_spec, self.rejoin.look,
        )  # fmt: skip
        self._parts = (self.feed, reporter, self.rejoin)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> "MemoryHost":
        await self.runtime.open()
        outcome = await self.mesh.propose(
            command(
                "RegisterNode", node_id=self.node, uid=f"uid-{self.node}", api_addr="127.9.7.6:7460", voter_addr=None,
                gpus=[{"uuid": c, "type": "H100", "memory_mb": 1, "index": i} for i, c in enumerate(self.cards)],
                gpu_backend="simulated", runtime="memory", labels={}, version="0", cpus=1, memory_mb=1,
                **({"addresses": list(self.addresses)} if self.addresses else {}),
            )
        )  # fmt: skip
        assert outcome["ok"], outcome
        self._tasks = [asyncio.create_task(part.run()) for part in self._parts]
        await self.feed.reached(outcome["idx"])
        self._tasks.append(asyncio.create_task(self.host.run()))
        return self

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.runtime.close()

    def hold_lease(self, stands: bool) -> None:
        self.lease = stands
        self.host.wake()


class State:
    """Looks at the mesh, and decides by hand what controllers would."""

    def __init__(self, mesh: MemoryMesh, directory: Path) -> None:
        self.mesh, self.directory, self.groups = mesh, directory, 0

    async def get(self, entity: str, key: str) -> Any:
        return (await self.mesh.query([{"get": [entity, key]}]))["results"][0]

    async def tasks(self, group_id: str) -> list[dict[str, Any]]:
        return [row for _, row in (await self.mesh.query([{"scan": ["task", f"{group_id}/"]}]))["results"][0]]

    async def until(self, group_id: str, want: Any, within_s: float = 5.0) -> list[dict[str, Any]]:
        """The tasks once `want(group, tasks)`."""
        deadline = time.monotonic() + within_s
        while True:
            group, tasks = await self.get("group", group_id), await self.tasks(group_id)
            with contextlib.suppress(IndexError, KeyError):
                if want(group, tasks):
                    return tasks
            assert time.monotonic() < deadline, (group["status"], group["pending_reason"], tasks)
            await asyncio.sleep(0.01)

    async def submit(self, n_nodes: int = 1, **training: Any) -> str:
        self.groups += 1
        group_id = f"tg-{self.groups:020d}"
        document, _ = accepted_task_group(
            {
                "name": f"g{self.groups}",
                "task_type": "training",
                "training": {
                    "framework": "ddp",
                    "n_nodes": n_nodes,
                    "per_node_gpu": 1,
                    "checkpoint_path": f"{self.directory}/ckpt-{self.groups}",
                    **training,
                },
                "task": {"command": "train", "gpu_required": 1},
            },
            (f"{self.directory}/",),
        )
        fields = {"group_id": group_id, "document": document, "tenant": "t", "user": "u", "warnings": []}
        outcome = await self.mesh.propose(command("SubmitGroup", **fields, resubmit_of=None))
        assert outcome["ok"], outcome
        return group_id

    async def bind(self, group_id: str, nodes: list[str], attempt: int = 1, port: int = PORT, card: int = 0) -> None:
        placements = [
            {"rank": rank, "node": node, "gpus": [f"{node}-gpu-{card}"], "port": port if rank == 0 else 0}
            for rank, node in enumerate(nodes)
        ]
        outcome = await self.mesh.propose(
            command("BindGroup", group_id=group_id, attempt=attempt, placements=placements)
        )
        assert outcome["ok"], outcome

    async def start(self, group_id: str, attempt: int = 1, port: int = PORT) -> None:
        group = await self.get("group", group_id)
        claimed = list(range(len(group["nodes"])))
        master = {"addr": "127.9.7.6", "port": port}
        outcome = await self.mesh.propose(
            command(
                "StartGroup", group_id=group_id, attempt=attempt, claimed=claimed, master=master, resume=group["probe"]
            )
        )
        assert outcome["ok"], outcome
