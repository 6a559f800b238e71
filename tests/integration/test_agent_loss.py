"""A host that falls silent and comes back: its ranks run elsewhere, nothing runs twice, and it is taken back clean."""

import asyncio
import os
import signal

import pytest

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# Appends "attempt rank" ten times a second to a file both attempts share, then, on a second attempt, ends soon.
TRAIN = (
    'for i in $(seq 1 600); do echo "$HETEROFLOW_ATTEMPT $NODE_RANK" >> "$HETEROFLOW_CHECKPOINT_PATH/trace"; '
    'echo "$HETEROFLOW_ATTEMPT:$i"; if [ "$HETEROFLOW_ATTEMPT" -gt 1 ] && [ $i -gt 10 ]; then exit 0; fi; '
    "sleep 0.1; done"
)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    running = RunningMesh(tmp_path_factory.mktemp("mesh"), n=3)
    running.start()
    yield running
    running.stop()


async def placed(mesh, name):
    """A running one-rank group on a host that does not lead, and a host that has nothing to do with it."""
    blockers = []
    while True:
        group_id = await mesh.submit(shell_group(name, mesh.directory, TRAIN, n_nodes=1))
        running = await mesh.status(group_id, "running")
        victim = next(node for node in mesh.nodes if node.name == running["tasks"][0]["node_id"])
        if victim is not await mesh.leader():
            break
        # The leader's host is filled, so that the next try goes elsewhere.
        name += "x"
        blockers += [group_id, await mesh.submit(shell_group(f"fill-{name}", mesh.directory, "sleep 600", n_nodes=1))]
        await mesh.status(blockers[-1], "running")
    for blocker in blockers:
        await mesh.nodes[0].call("POST", f"/task-groups/{blocker}/stop")
        await mesh.status(blocker, "stopped")
    return group_id, victim, next(node for node in mesh.nodes if node is not victim)


async def ready(mesh, node, reader):
    async def is_ready():
        nodes = (await reader.call("GET", "/nodes")).value["nodes"]
        row = next(row for row in nodes if row["node_id"] == node.name)
        return row if row["state"] == "ready" else None

    return await eventually(lambda: f"{node.name} to be ready again", is_ready)


def attempts(mesh, group):
    path = mesh.directory / "checkpoints" / group["name"] / "trace"
    return [int(line.split()[0]) for line in path.read_text().splitlines()]


@pytest.mark.attack(46)
async def test_an_agent_frozen_beyond_its_lease(mesh):
    group_id, victim, reader = await placed(mesh, "frozen")
    follow = asyncio.create_task(mesh.lines(group_id, node=reader.number, follow=True))
    victim.freeze_agent()
    done = await mesh.status(group_id, "completed", "failed", node=reader.number, within_s=40)
    assert done["status"] == "completed" and done["attempt"] == 2 and done["restarts"] == 1, done
    trace = attempts(mesh, done)
    assert trace == sorted(trace) and set(trace) == {1, 2}, "the first attempt wrote after the second had begun"
    victim.thaw_agent()
    row = await ready(mesh, victim, reader)
    assert row["gpus_free"] == 2 or row["gpus_held"], row
    lines = await asyncio.wait_for(follow, 40)
    assert [line["text"] for line in lines if line["attempt"] == 2] == [f"2:{i}" for i in range(1, 12)]
    events = (await reader.call("GET", f"/task-groups/{group_id}/fault-events")).value["events"]
    kinds = [event["kind"] for event in events]
    assert kinds.index("node_lost") < kinds.index("requeued") < len(kinds) - 1 - kinds[::-1].index("bound")


async def test_a_host_without_power(mesh):
    group_id, victim, reader = await placed(mesh, "power")
    victim.kill_host()
    done = await mesh.status(group_id, "completed", "failed", node=reader.number, within_s=40)
    assert done["status"] == "completed" and done["attempt"] == 2
    victim.start()
    row = await ready(mesh, victim, reader)
    assert row["losses"] >= 1
    # It takes work again, and the log of what died here is still served.
    again = await mesh.submit(shell_group("again", mesh.directory, "echo here", n_nodes=3), node=reader.number)
    assert (await mesh.status(again, "completed", "failed", node=reader.number))["status"] == "completed"
    lines = await mesh.lines(group_id, node=reader.number, attempt=1)
    assert lines and lines[0]["text"] == "1:1"


async def test_keep_is_neither_stopped_nor_started_again(mesh):
    document = shell_group("keep", mesh.directory, "sleep 22; echo done", n_nodes=1) | {"on_isolation": "keep"}
    group_id = await mesh.submit(document)
    running = await mesh.status(group_id, "running")
    victim = next(node for node in mesh.nodes if node.name == running["tasks"][0]["node_id"])
    reader = next(node for node in mesh.nodes if node is not victim)
    victim.freeze_agent()

    async def lost():
        nodes = (await reader.call("GET", "/nodes")).value["nodes"]
        return any(row["node_id"] == victim.name and row["state"] == "lost" for row in nodes)

    await eventually(lambda: f"{victim.name} to be lost", lost)
    assert (await mesh.group(group_id, reader.number))["status"] == "running"
    victim.thaw_agent()
    await ready(mesh, victim, reader)
    done = await mesh.status(group_id, "completed", "failed", node=reader.number, within_s=30)
    assert done["status"] == "completed" and done["attempt"] == 1
    assert [line["text"] for line in await mesh.lines(group_id, reader.number)] == ["done"]


async def test_a_frozen_voter_costs_this_host_nothing(mesh):
    """Its agent goes to the others: it keeps its lease, its ranks, its API and its feed."""
    leader = await mesh.leader()
    victim = next(node for node in mesh.nodes if node is not leader)
    document = shell_group("beside", mesh.directory, "sleep 25; echo done", n_nodes=3)
    group_id = await mesh.submit(document)
    await mesh.status(group_id, "running")
    voter = victim.voter_pid
    os.kill(voter, signal.SIGSTOP)
    try:
        await asyncio.sleep(20)  # beyond T_lease: without renewals through the others the node would be lost
        assert (await mesh.group(group_id, victim.number))["attempt"] == 1
        done = await mesh.status(group_id, "completed", "failed", "recovering", node=victim.number, within_s=30)
        assert done["status"] == "completed" and done["attempt"] == 1 and done["restarts"] == 0
    finally:
        os.kill(voter, signal.SIGCONT)


async def test_every_host_restarted_in_turn_stops_no_training(tmp_path):
    """With the leases of the profile `lan`: on a busy machine an agent is back later than the 9 s of `fast`, and then
    the host rightly ends its tasks. The training goes on until it is told, however long the restarts take."""
    async with RunningMesh(tmp_path, 3, profile="lan") as mesh:
        told = tmp_path / "enough"
        train = f"i=0; until [ -e {told} ]; do i=$((i+1)); echo $i; sleep 0.1; done"
        group_id = await mesh.submit(shell_group("rolling", mesh.directory, train, n_nodes=3))
        await mesh.status(group_id, "running")
        for node in mesh.nodes:
            other = next(peer for peer in mesh.nodes if peer is not node)
            node.guard.terminate()
            await asyncio.to_thread(node.guard.wait, 30)
            node.start()

            async def serves(node=node):
                return (await node.call("GET", f"/task-groups/{group_id}")).value["status"] == "running"

            await eventually("the restarted agent to serve", serves)
            assert (await mesh.group(group_id, other.number))["attempt"] == 1
        told.touch()
        done = await mesh.status(group_id, "completed", "failed", "recovering", within_s=40)
        assert done["status"] == "completed" and done["attempt"] == 1 and done["restarts"] == 0
        lines = await mesh.lines(group_id, node=2)
        for rank in range(3):
            said = [line["text"] for line in lines if line["rank"] == rank]
            assert said == [str(at) for at in range(1, len(said) + 1)] and said, rank


async def test_power_cut_of_the_whole_mesh(mesh):
    """All hosts at once, and back within the lease: what was accepted is there, what ran runs again, and once."""
    running = await mesh.submit(shell_group("all", mesh.directory, TRAIN, n_nodes=3))
    waiting = shell_group("after", mesh.directory, "true", n_nodes=3, per_node_gpu=2)
    waiting["task"]["gpu_required"] = 2
    await mesh.status(running, "running")
    queued = await mesh.submit(waiting, key="cut-1")
    for node in mesh.nodes:
        node.kill_host()
    for node in mesh.nodes:
        node.start()
    done = await mesh.status(running, "completed", "failed", within_s=60)
    assert done["status"] == "completed" and done["attempt"] == 2, done
    trace = attempts(mesh, done)
    assert trace == sorted(trace), "ranks of both attempts wrote at one time"
    assert await mesh.submit(waiting, node=2, key="cut-1") == queued
    assert (await mesh.status(queued, "completed", "failed"))["status"] == "completed"


@pytest.mark.parametrize("frozen", [False, True])
async def test_the_voter_of_a_killed_agent_may_still_be_there(mesh, frozen):
    """It hands over the lead, or hangs on a slow disk; the next agent's voter waits for the directory and then runs."""
    victim = await mesh.leader()
    reader = next(node for node in mesh.nodes if node is not victim)
    old_voter, old_agent = victim.voter_pid, victim.agent_pid

    async def voter_of_the_next_agent():
        answer = await victim.call("GET", "/mesh")
        assert answer.status == 200 and answer.value["agent"]["pid"] != old_agent, answer
        return answer.value["agent"]["voter"]

    async def waits():
        return "in use by another voter" in (await voter_of_the_next_agent())["text"]

    async def runs():
        voter = await voter_of_the_next_agent()
        return voter["state"] == "running" and voter["pid"] != old_voter and not os.path.exists(f"/proc/{old_voter}")

    try:
        if frozen:
            os.kill(old_voter, signal.SIGSTOP)
        victim.kill_agent()
        if frozen:
            await eventually("the next voter to say why it waits", waits)
    finally:
        if frozen:
            os.kill(old_voter, signal.SIGCONT)
    await eventually("the next voter to run", runs)
    await ready(mesh, victim, reader)

    async def follows():
        voters = (await reader.call("GET", "/mesh")).value["consensus"]["voters"]
        return all(voter["connected"] for voter in voters)

    await eventually("all voters to be connected", follows)


async def test_a_voter_with_a_damaged_log_leaves_its_host_a_client_of_the_others(mesh):
    leader = await mesh.leader()
    victim = next(node for node in mesh.nodes if node is not leader)
    victim.guard.terminate()
    victim.guard.wait(timeout=15)
    log = victim.data_dir / "voter" / "log.db"
    raw = bytearray(log.read_bytes())
    for at in range(len(raw) // 2, len(raw), 97):
        raw[at] ^= 0xFF
    log.write_bytes(raw)
    victim.start()
    row = await ready(mesh, victim, leader)
    assert row["state"] == "ready"

    async def says_so():
        answer = await victim.call("GET", "/mesh")
        assert answer.status == 200, answer
        return answer.value["agent"] if answer.value["agent"]["voter"]["state"] == "refused" else None

    shown = await eventually("the agent to say that its voter is refused", says_so)
    assert shown["status"] == "degraded" and "log.db" in shown["voter"]["text"], shown
    group_id = await mesh.submit(shell_group("still", mesh.directory, "echo fine", n_nodes=3), node=victim.number)
    assert (await mesh.status(group_id, "completed", "failed", node=victim.number))["status"] == "completed"
