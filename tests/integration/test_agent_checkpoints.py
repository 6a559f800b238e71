"""Real agents and a real trainer of two nodes: its checkpoints are recorded, the last are kept, each attempt leaves its
manifest, and a stop waits for the next one."""

import json
import sys
from pathlib import Path

import pytest

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.integration.test_agent_drain import TRAINER
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    often = ("--telemetry-every", "0.4")
    running = RunningMesh(tmp_path_factory.mktemp("mesh"), n=2, voters=1, gpus="simulated:1xH100", guard_flags=often)
    running.start()
    yield running
    running.stop()


async def ledger(mesh, group_id):
    return (await mesh.nodes[1].call("GET", f"/task-groups/{group_id}/checkpoints")).value


async def test_what_a_gang_saves_is_recorded_kept_and_waited_for(mesh):
    document = shell_group("saves", mesh.directory, "", launcher="script", keep_last_n=2)
    document["training"]["hyper_params"] = {"steps": "1000000", "checkpoint_every": "100"}
    document["task"] |= {"command": [sys.executable, str(TRAINER), "--step-delay", "10"], "stop_grace_s": 20}
    group_id = await mesh.submit(document)
    running = await mesh.status(group_id, "running")
    place = Path(running["config"]["training"]["checkpoint_path"])

    async def two_removed():
        found = (await ledger(mesh, group_id))["checkpoints"]
        gone = [one for one in found if one["removed_at"]]
        return found if len(gone) >= 2 else None

    found = await eventually("two checkpoints recorded and removed", two_removed, 120)
    assert all(one["complete"] and one["attempt"] == 1 and one["bytes"] > 0 for one in found)
    steps = [one["step"] for one in found]
    assert steps == sorted(steps, reverse=True) and all(step % 100 == 0 for step in steps)
    for one in found:
        assert not (one["removed_at"] and (place / one["name"]).exists())
    (manifest,) = (place / ".heteroflow").glob("run-*.json")
    told = json.loads(manifest.read_text())
    assert (told["group_id"], told["attempt"], len(told["ranks"]), told["resume"]) == (group_id, 1, 2, None)

    detail = (await mesh.nodes[0].call("GET", f"/task-groups/{group_id}")).value
    assert detail["at_risk"]["saved"] and detail["saved"]["step"] >= steps[0]
    asked = await mesh.nodes[1].call("POST", f"/task-groups/{group_id}/stop-after-checkpoint", {"within_s": 120})
    assert (asked.status, asked.value["status"]) == (200, "running"), asked
    await mesh.status(group_id, "stopped", within_s=60)
    events = (await mesh.nodes[1].call("GET", f"/task-groups/{group_id}/fault-events")).value["events"]
    (said,) = [event["text"] for event in events if event["kind"] == "stopping"]
    assert ", after checkpoint step-" in said

    again = await mesh.nodes[1].call("POST", f"/task-groups/{group_id}/resubmit")
    second = again.value["group_id"]
    running = await mesh.status(second, "running")
    assert running["resume"]["step"] >= detail["saved"]["step"]

    async def restored():
        found = (await ledger(mesh, second))["checkpoints"]
        return [one for one in found if [item["result"] for item in one["restores"]] == ["went_on"]] or None

    (one,) = await eventually("a checkpoint after the one it resumed from", restored)
    assert (one["attempt"], one["step"]) == (None, running["resume"]["step"])
    assert len([*(place / ".heteroflow").glob("run-*.json")]) == 2
    await mesh.nodes[0].call("POST", f"/task-groups/{second}/stop")
