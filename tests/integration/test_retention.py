"""Ended groups that were kept long enough leave the state, and their logs leave the hosts; what is active stays."""

from pathlib import Path
from typing import Any

import pytest

from agentd.log_sweep import LogSweep
from mesh.core.control.retention import Retention
from mesh.memory import MemoryMesh
from mesh.pruner import Pruner
from schemas.commands import command
from schemas.ids import make_group_id
from schemas.limits import RETENTION_LEAST_MS
from tests.integration.memory_hosts import MemoryHost, State

DAY_MS = 86_400_000


class Clock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


async def submitted(mesh: MemoryMesh, number: int, clock: Clock) -> str:
    group_id = make_group_id(clock.now_ms, number.to_bytes(8, "big"))
    document = {
        "name": f"g{number}",
        "task_type": "training",
        "training": {"n_nodes": 1, "per_node_gpu": 1},
        "task": {"command": "x", "gpu_required": 1},
    }
    fields = {"document": document, "tenant": "t", "user": "u", "warnings": [], "resubmit_of": None}
    outcome = await mesh.propose(command("SubmitGroup", group_id=group_id, **fields))
    assert outcome["ok"], outcome
    return group_id


async def groups(mesh: MemoryMesh) -> set[str]:
    return {key for key, _ in (await mesh.query([{"scan": ["group"]}]))["results"][0]}


async def rows(mesh: MemoryMesh, entity: str) -> list[Any]:
    found: list[Any] = (await mesh.query([{"scan": [entity]}]))["results"][0]
    return found


@pytest.mark.parametrize(("retention", "left"), [((7 * DAY_MS, None), 8), ((None, 12), 12), ((None, None), 40)])
async def test_the_leader_prunes_to_its_bounds_and_touches_nothing_active(
    monkeypatch: pytest.MonkeyPatch, retention: tuple[int | None, int | None], left: int
) -> None:
    clock = Clock(1_764_000_000_000)
    mesh = MemoryMesh(clock_ms=clock)
    active = [await submitted(mesh, number, clock) for number in range(3)]
    for number in range(3, 43):
        # Two a day, and the last of them has ended a moment ago.
        clock.now_ms += DAY_MS // 2
        ended = await submitted(mesh, number, clock)
        assert (await mesh.propose(command("StopGroup", group_id=ended, by="u")))["ok"]
    clock.now_ms += RETENTION_LEAST_MS
    monkeypatch.setattr("mesh.pruner.time.time_ns", lambda: clock.now_ms * 1_000_000)
    pruner = Pruner(mesh, Retention(*retention))
    passes = 0
    while await pruner.look():
        passes += 1
    assert {*active} <= await groups(mesh)
    assert len(await groups(mesh)) == len(active) + left + (6 if retention[0] else 0)
    assert passes == (2 if left < 40 else 0)
    kept = await groups(mesh)
    assert {key.partition("/")[0] for key, _ in await rows(mesh, "event")} == kept
    assert {key.partition("/")[2] for key, _ in await rows(mesh, "ended")} == kept - {*active}


async def test_what_is_active_or_young_is_kept_whatever_is_proposed() -> None:
    clock = Clock(1_764_000_000_000)
    mesh = MemoryMesh(clock_ms=clock)
    active, young = await submitted(mesh, 1, clock), await submitted(mesh, 2, clock)
    await mesh.propose(command("StopGroup", group_id=young, by="u"))
    ids = [active, young, make_group_id(1, b"nowhere.")]
    outcome = await mesh.propose(command("PruneGroups", group_ids=ids))
    assert outcome["data"] == {"pruned": [], "kept": [active, young], "changed": 0}
    assert await groups(mesh) == {active, young}


async def test_logs_follow_the_state_and_those_of_living_tasks_stay(tmp_path: Path) -> None:
    mesh = MemoryMesh()
    state, host = State(mesh, tmp_path), MemoryHost(mesh, "n1", tmp_path)
    await host.start()
    try:
        tasks = tmp_path / "tasks"
        running, over = await state.submit(), await state.submit()
        await state.bind(running, ["n1"])
        await state.until(running, lambda group, tasks: tasks[0]["status"] == "claimed")
        await mesh.propose(command("StopGroup", group_id=over, by="u"))
        forgotten, broken, stranger = (make_group_id(5, bytes([n] * 8)) for n in (1, 2, 3))
        for group_id in (running, over, forgotten, broken, stranger, "not-a-group"):
            (tasks / group_id / "1" / "0" / "log").mkdir(parents=True)
            (tasks / group_id / "1" / "0" / "log" / "0.log").write_text("x")
        # A task that nobody cleared, and one that this host's runtime speaks of.
        (tasks / broken / "1" / "0" / "spec.json").write_text("{}")
        (tasks / ".gone-x").mkdir()
        sweep = LogSweep(mesh, tasks, lambda: {*host.feed.groups, *host.host.groups, stranger})
        assert await sweep.look() == []
        assert not (tasks / ".gone-x").exists()
        assert await sweep.look() == sorted((forgotten, broken))
        there = {path.name for path in tasks.iterdir()}
        assert there == {running, over, broken, stranger, "not-a-group"}
        await mesh.propose(command("DeleteGroup", group_id=over))
        await sweep.look()
        assert over in await sweep.look()
        assert not (tasks / over).exists()
    finally:
        await host.stop()
