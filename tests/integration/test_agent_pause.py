"""A real training gang is paused and resumed: it saves, its cards run something else meanwhile, and it goes on at its
step although the leader dies in between; a paused one that is stopped leaves nothing."""

import pytest

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.integration.test_agent_drain import step_of, training
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    running = RunningMesh(tmp_path_factory.mktemp("mesh"), n=2, voters=1, gpus="simulated:1xH100")
    running.start()
    yield running
    running.stop()


async def order(mesh, group_id, what, key=None):
    headers = {"Idempotency-Key": key} if key else {}
    return await mesh.nodes[1].call("POST", f"/task-groups/{group_id}/{what}", headers=headers)


async def cards_free(mesh):
    return sum(node["gpus_free"] for node in (await mesh.nodes[0].call("GET", "/nodes")).value["nodes"])


async def test_a_gang_saves_frees_its_cards_and_goes_on_from_its_step(mesh):
    group_id = await mesh.submit(training(mesh, "pauses"))
    refused = await order(mesh, group_id, "resume")
    assert (refused.status, refused.value["code"]) == (409, "not_paused")
    reached = await step_of(mesh, group_id, 1, 20)

    said = await order(mesh, group_id, "pause", "k-pause-1")
    assert (said.status, said.value) == (200, {"group_id": group_id, "status": "pausing"}), said
    assert (await order(mesh, group_id, "pause", "k-pause-1")).value == said.value, "asked again, done once"
    group = await mesh.status(group_id, "paused")
    # The others hear of it from the rank that is told first, and may be gone before their own order comes.
    assert 0 in {task["exit_code"] for task in group["tasks"]}, group["tasks"]
    await eventually("both cards free", lambda: _all_free(mesh, 2))

    # Its cards are another's now; it keeps its place before what comes later.
    other = await mesh.submit(shell_group("between", mesh.directory, "sleep 1000"))
    await mesh.status(other, "running")
    late = await mesh.submit(shell_group("late", mesh.directory, "true"))
    assert (await order(mesh, group_id, "resume")).value["status"] == "pending"
    queue = (await mesh.nodes[0].call("GET", "/queue")).value["queue"]
    assert [entry["group_id"] for entry in queue] == [group_id, late]
    mesh.nodes[0].kill_agent()  # and its voter with it: the next leader has it from the log
    await eventually("an answer after the leader's end", lambda: _stopped(mesh, other))

    again = await mesh.status(group_id, "running", within_s=60)
    saved = int(again["resume"]["path"].rpartition("step-")[2])
    assert again["attempt"] == 2 and saved >= reached, "the ranks were given the time to save"
    assert again["restarts"] == 0
    assert await step_of(mesh, group_id, 1, saved + 5) > saved
    events = (await mesh.nodes[0].call("GET", f"/task-groups/{group_id}/fault-events")).value["events"]
    kinds = [event["kind"] for event in events]
    assert kinds.index("pausing") < kinds.index("paused") < kinds.index("resumed")
    audit = (await mesh.nodes[0].call("GET", "/audit")).value["entries"]
    assert {"PauseGroup", "ResumeGroup"} <= {entry["what"] for entry in audit if entry["target"] == group_id}

    # Stopped while it is paused: nothing of it is left, and it can be deleted.
    await order(mesh, group_id, "pause")
    await mesh.status(group_id, "paused")
    assert (await mesh.nodes[0].call("DELETE", f"/task-groups/{group_id}")).value["code"] == "group_active"
    assert (await order(mesh, group_id, "stop")).value["status"] == "stopped"
    await mesh.status(late, "completed")
    await eventually("both cards free", lambda: _all_free(mesh, 2))
    assert (await mesh.nodes[0].call("DELETE", f"/task-groups/{group_id}")).status == 200


async def test_a_deadline_gives_the_ranks_their_grace_and_a_wait_has_an_end(mesh):
    document = training(mesh, "late")
    document["training"]["deadline_s"] = 3
    group_id = await mesh.submit(document)
    waits = shell_group("waits", mesh.directory, "true", n_nodes=5, max_wait_s=2)
    waiting = await mesh.submit(waits)
    running = await mesh.status(group_id, "running")
    assert running["limit"]["over"] == "deadline_over" and running["limit"]["at"] > running["started_at"]
    await step_of(mesh, group_id, 1)

    group = await mesh.status(group_id, "failed")
    assert (group["failure"]["class"], group["failure"]["rank"]) == ("walltime", None)
    # The others hear of it from the rank that is told first, and may be gone before their own order comes.
    assert 0 in {task["exit_code"] for task in group["tasks"]}, group["tasks"]
    lines = await mesh.lines(group_id)
    assert any("saved" in line["text"] for line in lines), [line["text"] for line in lines][-5:]
    events = (await mesh.nodes[0].call("GET", f"/task-groups/{group_id}/fault-events")).value["events"]
    assert [event["kind"] for event in events if event["rank"] is None][-2:] == ["deadline_over", "failed"]

    waited = await mesh.status(waiting, "failed")
    assert waited["failure"]["class"] == "unschedulable" and "needs 5 nodes" in waited["failure"]["text"]
    await eventually("both cards free", lambda: _all_free(mesh, 2))


async def _all_free(mesh, count):
    return await cards_free(mesh) == count


async def _stopped(mesh, group_id):
    return (await order(mesh, group_id, "stop")).status == 200
