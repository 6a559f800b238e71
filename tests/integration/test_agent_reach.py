"""Agents that try rank 0's addresses while they claim: whichever order their claims come in, and restarts between."""

import contextlib
import socket

import pytest

from agentd.runtime.memory import Behaviour
from mesh.memory import MemoryMesh
from tests.integration.memory_hosts import PORT, MemoryHost, State
from tests.integration.test_agent_orders import agents, released, statuses

HERE = "127.9.7.6"
# Reserved: nobody has it, and no packet leaves for it.
NOWHERE = "240.0.0.1"
OFFERED = (NOWHERE, HERE)


@pytest.fixture
def world(tmp_path):
    mesh = MemoryMesh()
    return mesh, State(mesh, tmp_path), tmp_path


def runs(spec):
    return Behaviour(run_s=0.1, exit_code=0)


async def test_every_rank_says_where_it_reached_rank_0_and_the_start_says_so(world):
    mesh, state, path = world
    hosts = [MemoryHost(mesh, name, path, runs, addresses=OFFERED) for name in ("a", "b", "c")]
    async with agents(*hosts):
        group_id = await state.submit(3)
        await state.bind(group_id, ["a", "b", "c"])
        await state.until(group_id, statuses("claimed", "claimed", "claimed"))
        reach = (await state.get("group", group_id))["reach"]
        assert (reach["common"], reach["heard"]) == ([HERE], 3)
        assert {(fault["rank"], fault["addr"]) for fault in reach["faults"]} == {(rank, NOWHERE) for rank in range(3)}
        with contextlib.suppress(ConnectionError), socket.create_connection((HERE, PORT), timeout=5):
            pytest.fail("nobody listens any more once all have come: a trainer would be taken for one of them")
        await state.start(group_id)
        await state.until(group_id, released)
        assert (await state.get("group", group_id))["status"] == "completed"
        events = (await mesh.query([{"scan": ["event", f"{group_id}/", "", 1000]}]))["results"][0]
        (told,) = [event["text"] for _, event in events if event["kind"] == "starting"]
        assert f"meet at {HERE}: rank " in told and f"{NOWHERE} " in told


async def test_a_rank_that_is_early_waits_for_rank_0(world):
    mesh, state, path = world
    a, b = (MemoryHost(mesh, name, path, runs, addresses=(HERE,)) for name in ("a", "b"))
    async with agents(a, b):
        a.hold_lease(False)
        group_id = await state.submit(2)
        await state.bind(group_id, ["a", "b"])
        await state.until(group_id, lambda group, tasks: group_id in b.host.groups)
        await state.until(group_id, statuses("bound", "bound"))
        a.hold_lease(True)
        await state.until(group_id, statuses("claimed", "claimed"))
        assert (await state.get("group", group_id))["reach"]["common"] == [HERE]


async def test_an_old_agent_tries_nothing_and_harms_nothing(world):
    """It does not know the door, which is closed when rank 0 starts."""
    mesh, state, path = world
    a, b = (MemoryHost(mesh, name, path, runs, addresses=(HERE,)) for name in ("a", "b"))
    plain = b.host._claim_request

    def without(row, group):
        return plain(row, {name: value for name, value in group.items() if name != "reach"})

    b.host._claim_request = without
    async with agents(a, b):
        group_id = await state.submit(2)
        await state.bind(group_id, ["a", "b"])
        await state.until(group_id, statuses("claimed", "claimed"))
        assert (await state.get("group", group_id))["reach"]["heard"] == 1
        await state.start(group_id)
        await state.until(group_id, released)


@pytest.mark.parametrize("cut", ["a", "b"])
async def test_an_agent_that_is_restarted_after_its_claim(world, cut):
    mesh, state, path = world
    hosts = {name: MemoryHost(mesh, name, path, runs, addresses=(HERE,)) for name in ("a", "b")}
    async with agents(*hosts.values()):
        group_id = await state.submit(2)
        await state.bind(group_id, ["a", "b"])
        await state.until(group_id, statuses("claimed", "claimed"))
        await hosts[cut].stop()
        again = MemoryHost(mesh, cut, path, runs, hosts[cut].runtime.host, addresses=(HERE,))
        async with agents(again):
            await state.start(group_id)
            await state.until(group_id, released)
            assert (await state.get("group", group_id))["status"] == "completed"
