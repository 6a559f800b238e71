"""The stall alert on a real mesh with real processes, its limits shortened by flags."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mesh_fixture import RunningMesh, descendants, shell_group
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
# Above what a busy machine may hold a trainer up by; far below the pauses that are to be told apart.
STALL_S = 5.0
FLAGS = ("--telemetry-every", "0.3", "--stall-after", str(STALL_S))
EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"


@pytest.fixture
async def mesh(request, tmp_path):
    flags = (*FLAGS, *getattr(request, "param", ()))
    async with RunningMesh(tmp_path, n=3, guard_flags=flags) as running:
        yield running


def trainer(mesh: RunningMesh, name: str, *words: str, n_nodes: int = 1) -> dict[str, Any]:
    group = shell_group(name, mesh.directory, "", n_nodes)
    group["task"] |= {"command": [sys.executable, *words], "env": {"PYTHONPATH": str(EXAMPLES)}}
    return group


async def alerts(mesh: RunningMesh, node: int = 3, state: str = "raised") -> list[dict[str, Any]]:
    answer = await mesh.nodes[node - 1].call("GET", f"/alerts?state={state}")
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.value["alerts"]
    return found


async def test_a_rank_that_stops_before_its_all_reduce(mesh):
    words = [str(EXAMPLES / "train_numpy.py"), "--step-delay", "20"]
    body = trainer(mesh, "stuck", *words, n_nodes=2)
    body["training"]["hyper_params"] = {"steps": "1000000"}
    group_id = await mesh.submit(body)
    group = await mesh.status(group_id, "running")

    async def step_beyond(step: int) -> int | None:
        said = (await mesh.nodes[2].call("GET", f"/telemetry?group={group_id}")).value["groups"]
        return said[0]["step"] if said and (said[0]["step"] or 0) > step else None

    reached = await eventually("steps in telemetry", lambda: step_beyond(20))
    host = next(node for node in mesh.nodes if node.name == group["nodes"][1])
    rank_1 = [pid for pid in descendants(host.guard.pid) if _runs(pid, "train_numpy.py")]
    assert rank_1
    _send(rank_1, signal.SIGSTOP)
    try:

        async def risen() -> dict[str, Any] | None:
            return next((alert for alert in await alerts(mesh) if alert["group_id"] == group_id), None)

        alert = await eventually("the alert", risen)
        assert (alert["rule"], alert["attempt"], alert["state"]) == ("stalled", 1, "raised")
        assert "no step for" in alert["text"] and "every rank" in alert["text"]
        assert [found["id"] for found in await alerts(mesh, node=1)] == [alert["id"]]
    finally:
        _send(rank_1, signal.SIGCONT)

    async def cleared() -> bool:
        return not await alerts(mesh)

    await eventually("the alert to clear", cleared)
    await eventually("steps after the stop", lambda: step_beyond(reached + 20))
    assert [found["state"] for found in await alerts(mesh, state="all")] == ["cleared"]


@pytest.mark.parametrize("mesh", [("--stall-fails-after", str(3 * STALL_S))], indirect=True)
async def test_what_only_looks_like_a_stall_and_the_end_of_what_is_one(mesh):
    script = str(Path(__file__).with_name("paced_trainer.py"))
    kinds = ("slow_start", "checkpoint", "held_back", "hang")
    groups = {kind: await mesh.submit(trainer(mesh, kind.replace("_", "-"), script, kind)) for kind in kinds}
    hang = groups.pop("hang")
    seen: set[str] = set()

    async def ended() -> bool:
        seen.update(alert["group_id"] for alert in await alerts(mesh, state="all"))
        states = [(await mesh.group(group_id))["status"] for group_id in groups.values()]
        assert "failed" not in states, states
        return states == ["completed"] * len(groups)

    await eventually("the healthy ones to complete", ended, every_s=0.2)

    async def hang_is_seen() -> bool:
        seen.update(alert["group_id"] for alert in await alerts(mesh, state="all"))
        return hang in seen

    await eventually("the one that hangs", hang_is_seen)
    assert seen == {hang}
    failed = await mesh.status(hang, "failed", within_s=60)
    assert (failed["failure"]["class"], failed["failure"]["rank"]) == ("stalled", None)
    assert "rank 0 on" in failed["failure"]["text"]
    events = (await mesh.nodes[0].call("GET", f"/task-groups/{hang}/fault-events")).value["events"]
    assert [event["kind"] for event in events if event["rank"] is None][-2:] == ["stalled", "failed"]


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def _runs(pid: int, script: str) -> bool:
    """The program and its workers, and no shim that carries its name in an argument."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith(script.encode()) for word in words[1:2])
