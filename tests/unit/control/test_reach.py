"""The address at which ranks meet is the first one of rank 0's node that all of them reached."""

import pytest

from tests.unit.state.world import World

PRIVATE, PUBLIC = "10.0.0.5", "203.0.113.5"


@pytest.fixture
def world():
    world = World({})
    for node in ("n1", "n2", "n3"):
        world.join(node, 1, addresses=[PRIVATE, PUBLIC])
    return world


def claimed(world, group, *reached, why="does not answer within 4 s"):
    """What each rank reached, by rank; None of one that does not try."""
    for _ in range(60):
        if world.status(group) != "scheduling":
            world.control(1000)
    for task, found in zip(world.tasks(group), reached, strict=True):
        told = {}
        if found is not None:
            missed = [{"addr": address, "why": why} for address in (PRIVATE, PUBLIC) if address not in found]
            told = {"reached": list(found), "unreached": missed}
        world.report(task, "claimed", **told)
    return world.control(1000)


@pytest.mark.parametrize(
    "reached, address",
    [
        (([PRIVATE, PUBLIC],) * 3, PRIVATE),
        (([PRIVATE, PUBLIC], [PRIVATE], [PRIVATE, PUBLIC]), PRIVATE),
        (([PRIVATE, PUBLIC], [PUBLIC], [PRIVATE, PUBLIC]), PUBLIC),
        (([PRIVATE, PUBLIC], None, [PUBLIC]), PUBLIC),
        ((None, None, None), "n1.example"),
    ],
)
def test_the_first_that_all_reached(world, reached, address):
    group = world.submit(3, 1)
    (start,) = claimed(world, group, *reached)
    assert (start["t"], start["master"]["addr"]) == ("StartGroup", address)
    said = [row for _, row in world.store.scan("event", f"{group}/")][-1]["text"]
    assert (f"meet at {PUBLIC}: rank 1 on " in said) == (address == PUBLIC and reached[1] is not None), said


def test_no_common_address_rolls_back_and_names_who_could_not_reach_what(world):
    group = world.submit(3, 1)
    back, *_ = claimed(world, group, [PRIVATE, PUBLIC], [PRIVATE], [PUBLIC])
    assert (back["t"], back["code"]) == ("RollbackGroup", "rendezvous_unreachable")
    nodes = {task["rank"]: task["node"] for task in world.tasks(group, attempt=1)}
    assert f"rank 1 on {nodes[1]}: {PUBLIC} does not answer" in back["text"]
    assert f"rank 2 on {nodes[2]}: {PRIVATE} does not answer" in back["text"]
    assert back["node"] == nodes[0], "its addresses are what two others cannot reach"


def test_the_one_that_reaches_nothing_is_the_one_to_avoid(world):
    group = world.submit(3, 1)
    back, *_ = claimed(world, group, [PRIVATE, PUBLIC], [PRIVATE, PUBLIC], [])
    assert back["node"] == world.tasks(group, attempt=1)[2]["node"]


def test_each_attempt_begins_anew_and_one_node_has_nothing_to_reach(world):
    group = world.submit(3, 1)
    claimed(world, group, [PRIVATE, PUBLIC], [], [])
    for task in world.tasks(group, attempt=1):
        world.report(task, "released")
    (start, *_) = claimed(world, group, *([PRIVATE],) * 3)
    assert start["t"] == "StartGroup" and world.group(group)["attempt"] == 2
    alone = World({})
    alone.join("n1", 1, addresses=[PRIVATE])
    single = alone.submit(1, 1)
    alone.control()
    assert "reach" not in alone.group(single)


def test_a_node_that_says_no_addresses_any_more_has_none(world):
    world.join("n1", 1)
    assert "addresses" not in world.store.get("node", "n1")
    group = world.submit(3, 1)
    world.control()
    first = world.group(group)["nodes"][0]
    assert ("reach" in world.group(group)) == (first != "n1")
