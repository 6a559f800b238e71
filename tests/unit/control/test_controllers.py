"""The shell around the controllers' core, on a whole mesh in memory."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mesh import controllers
from mesh.client import Leader
from mesh.controllers import Controllers
from mesh.core.control import decide
from mesh.memory import MemoryMesh
from schemas.commands import command
from schemas.ids import make_group_id
from tests.unit.state.world import START_MS, cards, document
from tests.waiting import eventually

HERE = "n1"


class Watched(MemoryMesh):
    """A mesh that notes what this host's controllers ask of it."""

    def __init__(self) -> None:
        super().__init__(node="n2")
        self.beats = 0
        self.proposed: list[tuple[str, int | None]] = []

    @property
    def leader(self) -> Leader | None:
        leader = super().leader
        return dataclasses.replace(leader, me=leader.node == HERE) if leader is not None else None

    async def beat(self) -> None:
        self.beats += 1

    async def propose(
        self, command: dict[str, Any], timeout_s: float = 10.0, term: int | None = None
    ) -> dict[str, Any]:
        self.proposed.append((command["t"], term))
        return await super().propose(command, timeout_s, term)


async def register(mesh: MemoryMesh, node: str, count: int) -> None:
    answer = await mesh.propose(
        command(
            "RegisterNode",
            node_id=node,
            uid=f"uid-{node}",
            api_addr=f"[fd00::{node[1:]}]:7460",
            voter_addr=None,
            gpus=cards(node, count),
            gpu_backend="simulated",
            runtime="memory",
            labels={},
            version="0.1.0",
            cpus=8,
            memory_mb=1024,
        )
    )
    assert answer["ok"], answer


async def submit(mesh: MemoryMesh, n_nodes: int, per_node: int, number: int = 1) -> str:
    group = make_group_id(START_MS, number.to_bytes(7, "big"))
    fields = {
        "document": document(n_nodes, per_node),
        "tenant": "t",
        "user": "ada",
        "warnings": [],
        "resubmit_of": None,
    }
    assert (await mesh.propose(command("SubmitGroup", group_id=group, **fields)))["ok"]
    return group


async def row(mesh: MemoryMesh, entity: str, key: str) -> dict[str, Any]:
    found = (await mesh.query([{"get": [entity, key]}]))["results"][0]
    assert isinstance(found, dict)
    return found


async def reaches(mesh: MemoryMesh, group: str, status: str) -> None:
    async def check() -> bool:
        return (await row(mesh, "group", group))["status"] == status

    await eventually(f"{group} to be {status}", check)


async def claim(mesh: MemoryMesh, group: str, kind: str, seq: int) -> None:
    tasks = (await mesh.query([{"scan": ["task", f"{group}/", "", None]}]))["results"][0]
    for _, task in tasks:
        ref = {key: task[key] for key in ("group_id", "attempt", "rank", "token")}
        report = {**ref, "seq": seq, "kind": kind}
        await mesh.propose(command("TaskReports", node=task["node"], uid=f"uid-{task['node']}", reports=[report]))


@pytest.fixture
async def mesh() -> AsyncIterator[Watched]:
    made = Watched()
    for node in ("n1", "n2"):
        await register(made, node, 2)
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def running(mesh: Watched) -> AsyncIterator[Controllers]:
    made = Controllers(mesh)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_they_do_nothing_while_another_host_leads(mesh):
    group = await submit(mesh, 2, 2)
    async with running(mesh) as shell:
        await asyncio.sleep(0.05)
        assert (mesh.beats, shell.sentence) == (0, "")
        assert (await row(mesh, "group", group))["status"] == "pending"


async def test_a_group_is_bound_and_started_in_the_planned_term(mesh):
    group = await submit(mesh, 2, 2)
    mesh.proposed.clear()
    async with running(mesh) as shell:
        mesh.elect(HERE)
        await reaches(mesh, group, "scheduling")
        await claim(mesh, group, "claimed", 1)
        await reaches(mesh, group, "starting")
        assert (await row(mesh, "group", group))["master"]["addr"] == "fd00::1"
        assert mesh.beats >= 1
        assert shell.sentence == "Placed 1 of 1 waiting groups."
    assert [said for said in mesh.proposed if said[0] != "TaskReports"] == [("BindGroup", 2), ("StartGroup", 2)]


async def test_they_stop_at_once_when_the_lead_goes_and_begin_anew_when_it_returns(mesh):
    async with running(mesh) as shell:
        mesh.elect(HERE)
        await eventually("a beat", lambda: mesh.beats > 0)
        mesh.elect("n2")
        group = await submit(mesh, 2, 2)
        await asyncio.sleep(0.05)
        assert (await row(mesh, "group", group))["status"] == "pending"
        assert shell.sentence == ""
        mesh.elect(HERE)
        await reaches(mesh, group, "scheduling")


async def test_one_proposal_is_made_once_however_many_frames_pass(mesh):
    async with running(mesh):
        mesh.elect(HERE)
        groups = [await submit(mesh, 1, 1, number) for number in range(4)]
        for group in groups:
            await reaches(mesh, group, "scheduling")
        await claim(mesh, groups[0], "claimed", 1)
        await reaches(mesh, groups[0], "starting")
    assert [name for name, _ in mesh.proposed].count("BindGroup") == 4
    assert [name for name, _ in mesh.proposed].count("StartGroup") == 1


async def test_a_large_pass_runs_beside_the_loop(mesh, monkeypatch):
    monkeypatch.setattr(controllers, "SMALL_PASS", 0)
    async with running(mesh):
        mesh.elect(HERE)
        await reaches(mesh, await submit(mesh, 2, 2), "scheduling")


@pytest.mark.parametrize(("decided_s", "rest"), [(0.0, 0.0), (0.019, 0.0), (0.05, 0.15), (3.0, 0.5)])
def test_a_long_pass_is_followed_by_a_rest(decided_s, rest):
    assert controllers.rest_s(decided_s) == pytest.approx(rest)


async def test_a_defect_in_a_pass_costs_no_beat_and_is_logged(mesh, monkeypatch, caplog):
    monkeypatch.setattr(controllers, "RESTART_S", 0.01)
    monkeypatch.setattr(controllers, "BEAT_PERIOD_MS", 10)
    failures: list[int] = []

    def faulty(*args: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise ZeroDivisionError("defect")
        return decide.decide(*args)

    monkeypatch.setattr(controllers, "decide", faulty)
    group = await submit(mesh, 2, 2)
    with caplog.at_level(logging.ERROR):
        async with running(mesh):
            mesh.elect(HERE)
            await reaches(mesh, group, "scheduling")
            before = mesh.beats
            await eventually("a beat", lambda: mesh.beats > before)
    assert len([record for record in caplog.records if "controller pass failed" in record.message]) == 2


async def test_a_proposal_of_an_old_term_ends_the_lead(mesh):
    """The leader changed and the push has not come yet: nothing more is proposed in the old term."""

    class Late(Watched):
        async def propose(
            self, command: dict[str, Any], timeout_s: float = 10.0, term: int | None = None
        ) -> dict[str, Any]:
            if term is not None:
                self.proposed.append((command["t"], term))
                return await MemoryMesh.propose(self, command, timeout_s, term - 1)
            return await MemoryMesh.propose(self, command, timeout_s)

    late = Late()
    await register(late, "n1", 2)
    await submit(late, 1, 1)
    async with running(late):
        late.elect(HERE)
        await eventually("a proposal", lambda: late.proposed)
        await submit(late, 1, 1, 2)
        await asyncio.sleep(0.1)
    assert late.proposed == [("BindGroup", 2)]
    await late.close()
