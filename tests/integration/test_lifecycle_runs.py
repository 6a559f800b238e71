"""Small groups on a real mesh of three hosts, each stopped, paused, resumed and deleted at random while hosts, agents
and leaders die: none gets stuck, and nothing of any of them is left.

`HF_LIFECYCLE_RUNS` says how many groups, `HF_LIFECYCLE_SEED` which draws; a failure prints both."""

import asyncio
import contextlib
import os
import random
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from scripts.loopback_mesh import processes_of
from tests.integration.mesh_fixture import TERMINAL, Answer, MeshNode, RunningMesh, shell_group
from tests.waiting import eventually

RUNS = int(os.environ.get("HF_LIFECYCLE_RUNS", "6"))
SEED = int(os.environ.get("HF_LIFECYCLE_SEED") or random.SystemRandom().randrange(1 << 32))
REPLAY = f"HF_LIFECYCLE_SEED={SEED} HF_LIFECYCLE_RUNS={RUNS} ./scripts/test tests/integration/test_lifecycle_runs.py"
AT_ONCE = 6
# A host is given up 15 s after it fell silent, and a group may lose several, one after the other.
ENDS_WITHIN_S = 180.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 12 * RUNS)]

PROGRAMS = {
    "obeys": "sleep 1000",
    "saves": "trap 'sleep 0.3; exit 0' TERM; sleep 1000 & wait",
    "is deaf": "trap '' TERM; sleep 1000",
    "has a daemon": "setsid sleep 1000 & sleep 1000",
    "ends": "sleep 2",
    "fails": "sleep 1; exit 3",
}
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"deadline_s": 3},
    {"max_wait_s": 20},
    {"recovery": {"max_restarts": 0}},
)
ORDERS = ("stop", "pause", "pause", "resume", "delete", "nothing")


class Run:
    """One group and what is done to it."""

    def __init__(self, mesh: RunningMesh, number: int, counts: Counter[str]) -> None:
        self.mesh, self.number, self.counts = mesh, number, counts
        self.rng = random.Random(f"{SEED} run {number}")
        self.program = self.rng.choice(list(PROGRAMS))
        self.limits = self.rng.choice(LIMITS)
        self.story: list[str] = [f"run {number}: a group that {self.program}, {self.limits}"]
        self.stopped = self.ran = False
        self.id, self._asked = "", 0

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        """Through any host, until one answers: a request that is tried again is the same one."""
        self._asked += 1
        headers = {"Idempotency-Key": f"run-{self.number}-{self._asked}"}

        async def asked() -> Answer | None:
            node = self.rng.choice(self.mesh.nodes)
            answer = await node.call(method, path, body, headers=headers, timeout_s=10.0)
            return answer if answer.status < 500 else None

        return await eventually(lambda: f"an answer to {method} {path}", asked, every_s=0.2)

    async def live(self) -> None:
        document = shell_group(
            f"run-{self.number}",
            self.mesh.directory,
            PROGRAMS[self.program],
            self.rng.randint(1, 3),
            launcher="script",
            **self.limits,
        )
        document["task"]["stop_grace_s"] = 1
        answer = await self.call("POST", "/task-groups", document)
        assert answer.status in (200, 201), answer
        self.id = answer.value["group_id"]
        for _ in range(self.rng.randint(1, 4)):
            # The moment of an order is what is drawn: in any state of the group.
            await asyncio.sleep(self.rng.choice((0.0, 0.3, 1.0, 2.5)))
            await self.order(self.rng.choice(ORDERS))
        await self.end()

    async def order(self, what: str) -> None:
        if what == "nothing":
            return
        method, path = ("DELETE", "") if what == "delete" else ("POST", f"/{what}")
        answer = await self.call(method, f"/task-groups/{self.id}{path}")
        said = answer.value.get("code") or answer.value.get("status") or "deleted"
        self.story.append(f"{what}: {said}")
        self.counts[f"{what}: {said}"] += 1
        assert answer.status in (200, 404, 409), (answer, self.story)
        self.stopped |= what == "stop" and answer.status == 200

    async def end(self) -> None:
        """Whatever it is by then, it can be brought to its end."""
        status = await self.status()
        if status == "paused" and self.rng.random() < 0.7:
            await self.order("resume")
        if status not in (*TERMINAL, "deleted"):
            await asyncio.sleep(self.rng.choice((0.0, 2.0)))
            await self.order("stop")

        async def over() -> str | None:
            status = await self.status()
            return status if status in (*TERMINAL, "deleted") else None

        ended = await eventually(lambda: f"the end of {self.id}: {self.story}", over, ENDS_WITHIN_S, every_s=0.3)
        self.counts[f"is {ended}"] += 1
        self.counts["ran"] += self.ran
        assert ended in ("stopped", "deleted") or not self.stopped, f"a stop wins: {self.story}"
        if ended != "deleted" and self.rng.random() < 0.5:
            await eventually(lambda: f"{self.id} to be deleted", self._deleted, ENDS_WITHIN_S, every_s=0.3)

    async def status(self) -> str:
        answer = await self.call("GET", f"/task-groups/{self.id}")
        status = "deleted" if answer.status == 404 else str(answer.value["status"])
        self.story.append(status)
        self.ran |= bool(answer.value.get("started_at"))
        return status

    async def _deleted(self) -> bool:
        """Refused while its cards are cleaned."""
        await self.order("delete")
        return self.story[-1] in ("delete: deleted", "delete: no_such_group")


class Faults:
    """One at a time, so that two of three voters are there."""

    def __init__(self, mesh: RunningMesh, counts: Counter[str]) -> None:
        self.mesh, self.counts = mesh, counts
        self.rng = random.Random(f"{SEED} faults")
        self.over = asyncio.Event()

    async def run(self) -> None:
        """Until `over`; what was begun then is mended."""
        while not await self.rest(self.rng.choice((0.5, 1.0, 2.0))):
            fault = self.rng.choice((self.host_dies, self.agent_dies, self.guard_dies, self.leader_changes))
            await fault(self.rng.choice(self.mesh.nodes))
            self.counts[fault.__name__.replace("_", " ")] += 1
            await self.healthy()

    async def rest(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()
        return self.over.is_set()

    async def host_dies(self, node: MeshNode) -> None:
        await asyncio.to_thread(node.kill_host)
        # Back before its lease has run out, or given up by then.
        await self.rest(self.rng.choice((0.5, 0.5, 18.0)))
        node.start()

    async def agent_dies(self, node: MeshNode) -> None:
        node.kill_agent()

    async def guard_dies(self, node: MeshNode) -> None:
        await asyncio.to_thread(node.kill_guard)
        node.start()

    async def leader_changes(self, node: MeshNode) -> None:
        (await self.mesh.leader(node.number)).kill_voter()

    async def healthy(self) -> None:
        for node in self.mesh.nodes:
            await eventually(f"{node.name} to be well", partial(_is_ok, node))


async def _is_ok(node: MeshNode) -> bool:
    return bool((await node.call("GET", "/mesh", timeout_s=5.0)).status == 200 and node.voter_pid)


@pytest.fixture
async def mesh(tmp_path):
    async with RunningMesh(tmp_path, n=3, gpus="simulated:4xH100") as running:
        yield running


async def test_groups_end_and_leave_nothing_whatever_happens(mesh):
    print(f"replay: {REPLAY}")
    counts: Counter[str] = Counter()
    runs = [Run(mesh, number, counts) for number in range(RUNS)]
    waiting = iter(runs)

    async def worker() -> None:
        for run in waiting:
            await run.live()

    faults = Faults(mesh, counts)
    dying = asyncio.create_task(faults.run())
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(AT_ONCE):
                workers.create_task(worker())
    except* (AssertionError, aiohttp.ClientError) as failed:
        raise AssertionError(f"{failed.exceptions[0]}\nreplay: {REPLAY}") from failed
    finally:
        faults.over.set()
        await dying
    left = await _what_is_left(mesh)
    print("\n".join(f"{count:5} {what}" for what, count in sorted(counts.items())))
    assert not left, f"left behind: {left}\nreplay: {REPLAY}"
    assert counts["ran"] >= RUNS // 4, f"hardly a group came to run: {counts}\nreplay: {REPLAY}"


async def _what_is_left(mesh: RunningMesh) -> list[str]:
    """Once all has been cleaned, or after a time in which it should have been."""
    left: list[str] = ["not looked yet"]

    async def nothing() -> bool:
        left[:] = [*await _groups_and_cards(mesh), *_processes(mesh), *_ports(mesh), *_mounts(mesh.directory)]
        return not left

    try:
        await eventually("nothing to be left", nothing, every_s=0.5)
    except AssertionError as late:
        left.append(str(late))
    return left


async def _groups_and_cards(mesh: RunningMesh) -> list[str]:
    groups = (await mesh.nodes[0].call("GET", "/task-groups?limit=1000")).value["groups"]
    active = [f"{group['group_id']} is {group['status']}" for group in groups if group["status"] not in TERMINAL]
    nodes = (await mesh.nodes[0].call("GET", "/nodes")).value["nodes"]
    return active + [
        f"{node['node_id']} ({node['state']}) has {node['gpus_free']} of {node['gpus_total']} cards free"
        for node in nodes
        if node["gpus_free"] != node["gpus_total"] or node["state"] != "ready"
    ]


def _processes(mesh: RunningMesh) -> list[str]:
    """What carries the mesh's directory and is neither guard, agent nor voter."""
    found = []
    for pid in processes_of(mesh.directory):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words and not re.search(r"agentd\.cli|agentd/guard|mesh\.voter|mesh/voter", words):
            found.append(f"process {pid}: {words[:120]}")
    return found


def _ports(mesh: RunningMesh) -> list[str]:
    """Master ports that somebody still listens on, on the addresses of this mesh."""
    prefix = "".join(f"{int(part):02X}" for part in reversed(mesh.loopback.prefix.strip(".").split(".")))
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, _, port = line.split()[1].partition(":")
        if line.split()[3] == "0A" and address.endswith(prefix) and 20_000 <= int(port, 16) < 30_000:
            found.append(f"port {int(port, 16)}")
    return found


def _mounts(directory: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"{directory}/" in line]
