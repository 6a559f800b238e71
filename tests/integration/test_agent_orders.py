"""Orders against what is there, agent restarts at every point between claim and release, and lapses of the lease."""

import asyncio
import contextlib
import os
import shutil
import socket
from dataclasses import replace

import pytest

from agentd.claims.claimer import ClaimRequest
from agentd.runtime.base import TaskId
from agentd.runtime.memory import Behaviour
from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.memory_hosts import PORT, MemoryHost, State
from tests.waiting import eventually


@pytest.fixture
def world(tmp_path):
    mesh = MemoryMesh()
    return mesh, State(mesh, tmp_path), tmp_path


@contextlib.asynccontextmanager
async def agents(*hosts):
    try:
        for host in hosts:
            await host.start()
        yield
    finally:
        for host in hosts:
            await host.stop()


def statuses(*wanted):
    return lambda group, tasks: tuple(task["status"] for task in tasks) == wanted


def released(group, tasks):
    return bool(tasks) and all(task["released"] for task in tasks)


async def test_a_gang_from_bind_to_free_cards(world):
    mesh, state, path = world
    ends = {"code": 0}

    def script(spec):
        return Behaviour(run_s=0.1, exit_code=ends["code"], output=f"rank {spec.env['NODE_RANK']}\n")

    a, b = MemoryHost(mesh, "a", path, script), MemoryHost(mesh, "b", path, script)
    async with agents(a, b):
        group_id = await state.submit(2)
        (path / "ckpt-1" / "step-5").mkdir(parents=True)
        (path / "ckpt-1" / "step-5" / "weights").write_text("x")
        await state.bind(group_id, ["a", "b"])
        await state.until(group_id, statuses("claimed", "claimed"))
        assert not a.runtime.host and not b.runtime.host, "nothing runs before all are claimed"
        await state.start(group_id)
        tasks = await state.until(group_id, released)
        group = await state.get("group", group_id)
        assert group["status"] == "completed" and group["resume"]["step"] == 5
        assert [task["exit_code"] for task in tasks] == [0, 0]
        assert not a.runtime.host and not b.runtime.host, "the runtime lets go of what the mesh has passed by"
        assert (await mesh.query([{"scan": ["hold", ""]}]))["results"] == [[]]
        # The feed follows the state, a moment behind.
        await eventually("the feed to be empty", lambda: not a.feed.tasks and not a.feed.groups)


async def test_a_link_to_a_name_that_is_no_text_is_told_and_keeps_back_no_other_report(world):
    mesh, state, path = world
    a = MemoryHost(mesh, "a", path, lambda spec: Behaviour(run_s=30))
    place = os.fsencode(path) + b"/caf\xe9"
    os.mkdir(place)
    os.symlink(place, path / "by-link")
    async with agents(a):
        odd = await state.submit(checkpoint_path=f"{path}/by-link/run")
        await state.bind(odd, ["a"])
        plain = await state.submit()
        await state.bind(plain, ["a"], port=PORT + 1, card=1)
        await state.until(plain, statuses("claimed"))
        await state.until(odd, statuses("claimed"))
    assert (await state.get("group", odd))["real_paths"] == [f"{path}/caf\\udce9/run"]


async def test_a_refusal_names_a_path_that_is_no_text(world):
    mesh, state, path = world
    os.symlink(b"/nowhere/caf\xe9", path / "by-link")
    async with agents(MemoryHost(mesh, "a", path)):
        odd = await state.submit(checkpoint_path=f"{path}/by-link/run")
        await state.bind(odd, ["a"])
        await state.until(odd, lambda group, tasks: group["status"] == "failed")
    failure = (await state.get("group", odd))["failure"]
    assert failure["class"] == "path_leaves_allowed" and "/nowhere/caf\\udce9/run" in failure["text"]


async def test_the_port_is_held_from_claim_to_start(world):
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path)
    async with agents(host):
        group_id = await state.submit()
        await state.bind(group_id, ["a"], port=20_017)
        await state.until(group_id, statuses("claimed"))
        with pytest.raises(OSError):
            socket.create_server(("127.9.7.6", 20_017)).close()
        await state.start(group_id, port=20_017)
        await state.until(group_id, statuses("running"))
        socket.create_server(("127.9.7.6", 20_017)).close()


async def test_a_port_someone_has_rolls_the_gang_back_with_the_reason(world):
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path)
    async with agents(host):
        group_id = await state.submit()
        with socket.create_server(("127.9.7.6", 20_018)):
            await state.bind(group_id, ["a"], port=20_018)
            await state.until(group_id, lambda group, tasks: group["status"] == "pending" and group["rollbacks"] == 1)
            group = await state.get("group", group_id)
            assert group["pending_reason"]["code"] == "port_taken" and "20018" in group["pending_reason"]["text"]
            await state.until(group_id, released)
        await state.bind(group_id, ["a"], attempt=2, port=20_018)
        await state.until(group_id, lambda group, tasks: tasks[-1]["status"] == "claimed")


@pytest.mark.parametrize("cut", ["before the claim", "claimed", "start ordered", "running", "ended unseen", "told"])
async def test_an_agent_restarted_anywhere(world, cut):
    """What was done is not done again, what was not is; the exit status arrives."""
    mesh, state, path = world
    runs = []

    def script(spec):
        runs.append(spec.id)
        return Behaviour(run_s=0.4 if cut == "ended unseen" else 0.6, exit_code=3)

    host = MemoryHost(mesh, "a", path, script)
    await host.start()
    group_id = await state.submit()
    if cut == "before the claim":
        await host.stop()
    await state.bind(group_id, ["a"])
    if cut != "before the claim":
        await state.until(group_id, statuses("claimed"))
    if cut in ("claimed", "start ordered"):
        await host.stop()
    if cut not in ("before the claim", "claimed"):
        await state.start(group_id)
    if cut in ("running", "ended unseen", "told"):
        await state.until(group_id, statuses("running"))
        if cut == "told":
            await state.until(group_id, statuses("exited"))
        await host.stop()
    kept = host.runtime.host
    if cut == "ended unseen":
        for task in kept.values():
            kept[task.seen.id].seen = _ended(task.seen)
    again = MemoryHost(mesh, "a", path, script, kept)
    async with agents(again):
        if cut in ("before the claim", "claimed"):
            await state.until(group_id, statuses("claimed"))
            await state.start(group_id)
        tasks = await state.until(group_id, released)
    assert runs == [TaskId(group_id, 1, 0)]
    assert tasks[0]["exit_code"] == 3 and (await state.get("group", group_id))["status"] == "failed"


def _ended(seen):
    return replace(seen, state="exited", exit_code=3, why="exited")


async def test_no_claim_and_no_start_without_a_lease(world):
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path)
    async with agents(host):
        host.hold_lease(False)
        group_id = await state.submit()
        await state.bind(group_id, ["a"])
        await asyncio.sleep(0.2)
        assert (await state.tasks(group_id))[0]["status"] == "bound"
        host.hold_lease(True)
        await state.until(group_id, statuses("claimed"))
        host.hold_lease(False)
        await _port_is_free(PORT)  # the claim is dropped with the lease
        await state.start(group_id)
        await asyncio.sleep(0.2)
        assert not host.runtime.host
        host.hold_lease(True)
        await state.until(group_id, statuses("running"))


async def _port_is_free(port):
    for _ in range(200):
        try:
            socket.create_server(("127.9.7.6", port)).close()
            return
        except OSError:
            await asyncio.sleep(0.01)
    raise AssertionError(f"port {port} is still held")


async def test_a_claim_that_fails_the_second_time_lets_the_group_recover(world):
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path)
    await host.start()
    group_id = await state.submit()
    await state.bind(group_id, ["a"])
    await state.until(group_id, statuses("claimed"))
    await host.stop()
    await state.start(group_id)
    with socket.create_server(("127.9.7.6", PORT)):
        async with agents(MemoryHost(mesh, "a", path)):
            await state.until(group_id, lambda group, tasks: group["status"] == "pending" and released(group, tasks))
    assert (await state.get("group", group_id))["restarts"] == 1


def save(place, name):
    (place / name).mkdir(parents=True)
    for file in ("state.pt", "complete"):
        (place / name / file).write_bytes(name.encode())


@pytest.mark.parametrize("cut", ["claimed", "start ordered"])
@pytest.mark.parametrize("then", ["gone", "other bytes", "as it was"])
async def test_a_claim_made_again_does_not_start_on_other_checkpoints_than_were_agreed(world, cut, then):
    """Nobody hears what it sees the second time: a share that went away meanwhile would let one rank begin at zero, and
    the others at the checkpoint that was decided."""
    mesh, state, path = world
    first, second = MemoryHost(mesh, "a", path), MemoryHost(mesh, "b", path)
    await first.start()
    await second.start()
    group_id = await state.submit(n_nodes=2)
    place = path / f"ckpt-{state.groups}"
    save(place, "step-20")
    await state.bind(group_id, ["a", "b"])
    await state.until(group_id, statuses("claimed", "claimed"))
    (view,) = (await state.get("group", group_id))["views"]
    await second.stop()
    if cut == "start ordered":
        await state.start(group_id)
        await state.until(group_id, lambda group, tasks: tasks[0]["status"] == "running")
    shutil.rmtree(place)
    place.mkdir()
    if then != "gone":
        save(place, "step-20")
    if then == "other bytes":
        (place / "step-20" / "state.pt").write_bytes(b"another training's")
    again = MemoryHost(mesh, "b", path)
    try:
        await again.start()
        if cut == "claimed":
            await until_claimed_again(again)
            await state.start(group_id)
        if then == "as it was":
            await state.until(group_id, statuses("running", "running"))
        else:
            await state.until(group_id, lambda group, tasks: group["status"] == "pending" and released(group, tasks))
            assert not [task for task in again.runtime.host.values() if task.seen.id.group_id == group_id]
            said = (await state.get("group", group_id))["retry"]["text"]
            assert "rank 1 on b" in said and "not as they were" in said and view["pick"] in said
    finally:
        await first.stop()
        await again.stop()


async def until_claimed_again(host):
    for _ in range(500):
        if any(claim.state == "held" for claim in host.host._claims.values()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not claimed again")


@pytest.mark.parametrize("part", ["_claim_request", "_task_spec"])
async def test_a_document_this_agent_cannot_read_harms_no_neighbour(world, part):
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path)
    plan = getattr(host.host, part)

    def cannot(row, group):
        if row["group_id"].endswith("1"):
            raise KeyError("a field of another version")
        return plan(row, group)

    setattr(host.host, part, cannot)
    async with agents(host):
        bad, good = await state.submit(), await state.submit()
        for card, group_id in enumerate((bad, good)):
            await state.bind(group_id, ["a"], port=20_040 + card, card=card)
        for card, group_id in ((1, good), (0, bad)):
            if group_id == good or part == "_task_spec":
                await state.until(group_id, statuses("claimed"))
                await state.start(group_id, port=20_040 + card)
        await state.until(good, statuses("running"))
        await state.until(bad, lambda group, tasks: group["status"] == "pending" and released(group, tasks))
        (task,) = await state.tasks(bad)
        assert "a field of another version" in task["reason"]


async def test_what_the_mesh_does_not_know_is_ended_and_forgotten(world):
    mesh, state, path = world
    first = MemoryHost(mesh, "a", path)
    await first.start()
    group_id = await state.submit()
    await state.bind(group_id, ["a"])
    await state.until(group_id, statuses("claimed"))
    await state.start(group_id)
    await state.until(group_id, statuses("running"))
    await first.stop()
    kept = first.runtime.host
    other = MemoryMesh()
    async with agents(MemoryHost(other, "a", path, None, kept)):
        for _ in range(300):
            if not kept:
                break
            await asyncio.sleep(0.01)
        assert not kept


async def test_a_user_s_stop_at_each_stage(world):
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path)
    async with agents(host):
        for number, stage in enumerate(("bound", "claimed", "running")):
            host.hold_lease(stage != "bound")
            group_id = await state.submit()
            await state.bind(group_id, ["a"], port=20_030 + number)
            if stage != "bound":
                await state.until(group_id, statuses("claimed"))
            if stage == "running":
                await state.start(group_id, port=20_030 + number)
                await state.until(group_id, statuses("running"))
            outcome = await mesh.propose(command("StopGroup", group_id=group_id, by="t"))
            assert outcome["ok"]
            await state.until(group_id, released)
            assert (await state.get("group", group_id))["status"] == "stopped"
            await _port_is_free(20_030 + number)


async def test_a_lost_host_ends_what_was_given_up_and_then_rejoins(world):
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path, lambda spec: Behaviour(on_term="ignore"))
    async with agents(host):
        lost, kept = await state.submit(), await state.submit()
        await mesh.propose(command("StopGroup", group_id=kept, by="t"))  # never bound: it only shows that nothing mixes
        await state.bind(lost, ["a"])
        await state.until(lost, statuses("claimed"))
        await state.start(lost)
        await state.until(lost, statuses("running"))
        host.hold_lease(False)
        await mesh.propose(command("ExpireNode", node_id="a", uid="uid-a", text="silent"))
        await state.until(lost, lambda group, tasks: group["status"] == "pending" and tasks[0]["status"] == "lost")
        assert (await state.get("node", "a"))["state"] == "lost" and not (await state.tasks(lost))[0]["released"]
        await host.runtime.kill(TaskId(lost, 1, 0))
        await state.until(lost, released)
        for _ in range(300):
            if (await state.get("node", "a"))["state"] == "ready":
                break
            await asyncio.sleep(0.01)
        assert (await state.get("node", "a"))["state"] == "ready" and not host.runtime.host


async def test_cards_of_one_task_are_not_given_to_another_here(world):
    """The state never does that; the host looks again all the same."""
    mesh, state, path = world
    host = MemoryHost(mesh, "a", path)
    async with agents(host):
        running = await state.submit()
        await state.bind(running, ["a"])
        await state.until(running, statuses("claimed"))
        await state.start(running)
        await state.until(running, statuses("running"))
        seen = await host.runtime.list()
        busy = {card: "tg" for item in seen for card in item.gpus}
        refusal = await host.claimer.claim(ClaimRequest("x", ("a-gpu-0",), 1, 0, None, None), busy)
        assert getattr(refusal, "code", None) == "cards_busy"
