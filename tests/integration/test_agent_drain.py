"""A node of real agents is drained under a training gang: it saves, leaves by the deadline, and goes on at its step
elsewhere, although the leader dies in between."""

import asyncio
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
TRAINER = Path(__file__).parents[2] / "scripts" / "examples" / "train_numpy.py"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    running = RunningMesh(tmp_path_factory.mktemp("mesh"), n=3)
    running.start()
    yield running
    running.stop()


def training(mesh, name):
    """Two nodes that save only when they are told to end."""
    document = shell_group(name, mesh.directory, "", launcher="script")
    document["training"]["hyper_params"] = {"steps": "1000000", "checkpoint_every": "1000000"}
    document["task"] |= {"command": [sys.executable, str(TRAINER), "--step-delay", "20"], "stop_grace_s": 20}
    return document


async def step_of(mesh, group_id, node, least=1):
    async def reached():
        lines = await mesh.lines(group_id, node=node, rank=0, tail=20)
        steps = [int(found[1]) for line in lines if (found := re.search(r"step (\d+) loss", line["text"]))]
        return steps[-1] if steps and steps[-1] >= least else None

    return await eventually(lambda: f"step {least} of {group_id}", reached)


async def node_row(node, name):
    rows = (await node.call("GET", "/nodes")).value["nodes"]
    return next(row for row in rows if row["node_id"] == name)


async def test_a_gang_leaves_a_drained_node_with_its_checkpoint(mesh):
    leader = await mesh.leader()
    group_id = await mesh.submit(training(mesh, "moves"))
    running = await mesh.status(group_id, "running")
    victim = next(node for node in mesh.nodes if node.name in running["nodes"] and node is not leader)
    reached = await step_of(mesh, group_id, victim.number, 20)

    order = {"mode": "wait", "deadline_s": 6, "reason": "new fans"}
    answer = await victim.call("POST", f"/nodes/{victim.name}/drain", order)
    assert (answer.status, answer.value["groups"], answer.value["cordoned"]) == (200, 1, True), answer
    leader.kill_voter()  # the next one has it from the log

    big = await mesh.submit(shell_group("big", mesh.directory, "true", n_nodes=3), node=victim.number)

    async def moved():
        shown = await mesh.group(group_id, victim.number)
        return shown if shown["attempt"] == 2 and shown["status"] == "running" else None

    group = await eventually("the gang to run elsewhere", moved)
    assert victim.name not in group["nodes"] and (group["restarts"], group["drains"]) == (0, 1)
    saved = int(group["resume"]["path"].rpartition("step-")[2])
    assert saved >= reached, "the ranks were given the time to save"
    assert await step_of(mesh, group_id, victim.number, saved + 10) > saved
    lines = await mesh.lines(group_id, node=victim.number, attempt=2)
    assert any(f"resumes from {group['resume']['path']}: step {saved}" in line["text"] for line in lines)
    events = (await victim.call("GET", f"/task-groups/{group_id}/fault-events")).value["events"]
    kinds = [event["kind"] for event in events]
    assert kinds.index("node_draining") < kinds.index("recovering") < kinds.index("requeued")
    assert not {"node_lost", "root_failure"} & set(kinds)
    left = next(event for event in events if event["kind"] == "recovering")
    assert left["at"] >= answer.value["deadline_at"], "it may run until the deadline"

    async def done():
        drain = (await node_row(victim, victim.name))["drain"]
        return drain if drain["done_at"] else None

    drain = await eventually("the drain to be done", done)
    assert (drain["groups"], drain["left"], drain["moved"]) == (1, 0, 1)

    async def told():
        reason = (await mesh.group(big, victim.number))["pending_reason"]
        return reason if reason and reason["code"] == "cordoned" else None

    reason = await eventually("the big group to say that it waits for a cordoned node", told)
    assert f"1 cordoned ({victim.name})" in reason["text"]
    await victim.call("POST", f"/task-groups/{group_id}/stop")
    assert (await victim.call("POST", f"/nodes/{victim.name}/uncordon")).value["cordoned"] is False
    await mesh.status(big, "completed", node=victim.number)


async def test_held_for_planned_work_a_mesh_without_voters_stops_nothing(mesh):
    """Every voter is stopped for longer than T_stop (9 s here): no rank is fenced, no group put back."""
    count = 'while true; do echo "$HETEROFLOW_ATTEMPT" >> "$HETEROFLOW_CHECKPOINT_PATH/trace"; sleep 0.1; done'
    group_id = await mesh.submit(shell_group("held", mesh.directory, count, n_nodes=3))
    await mesh.status(group_id, "running")
    answer = await mesh.nodes[0].call("POST", "/mesh/hold", {"for_s": 60, "reason": "new switch"})
    assert answer.status == 200, answer

    async def long_leases():
        agents = [(await node.call("GET", "/mesh")).value["agent"] for node in mesh.nodes]
        return all(agent["lease"]["left_ms"] > 30_000 for agent in agents)

    await eventually("every host to have a longer lease", long_leases)
    for node in mesh.nodes:
        node.signal_voter(signal.SIGSTOP)
    await asyncio.sleep(13)  # what is measured: a silence longer than T_stop and the kill budget
    for node in mesh.nodes:
        node.signal_voter(signal.SIGCONT)
    group = await mesh.status(group_id, "running", within_s=40)
    assert (group["attempt"], group["restarts"]) == (1, 0)
    trace = (mesh.directory / "checkpoints" / "held" / "trace").read_text().split()
    assert set(trace) == {"1"}
    shown = (await mesh.nodes[1].call("GET", "/mesh")).value["hold"]
    assert shown["reason"] == "new switch" and 0 < shown["left_s"] <= 62
    assert (await mesh.nodes[1].call("DELETE", "/mesh/hold")).value["left_s"] > 0
