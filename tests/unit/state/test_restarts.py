"""training.recovery: lost nodes within its bound, failures of the infrastructure where asked, a program's own never."""

from typing import Any

import pytest

from schemas.rules.failure_classes import INFRASTRUCTURE
from tests.unit.state.world import World

ALL = list(INFRASTRUCTURE)


def running(**recovery) -> tuple[World, str]:
    world = World({"n1": 1, "n2": 1, "n3": 1, "n4": 1})
    group = world.submit(2, 1, **({"recovery": recovery} if recovery else {}))
    world.run_up(group)
    return world, group


def fails(world: World, group: str, named: str | None, rank: int = 0, at_ms: int = 1000) -> None:
    extra: dict[str, Any] = {"class": named} if named else {}
    world.report(world.tasks(group)[rank], "exited", exit_code=1, at_ms=at_ms, **extra)


def ends(world: World, group: str) -> None:
    world.obey(group)
    world.clean(group)


@pytest.mark.parametrize("named", ALL)
def test_a_failure_of_the_infrastructure_restarts_it_where_asked(named):
    world, group = running(max_restarts=2, on=ALL)
    node = world.tasks(group)[0]["node"]
    fails(world, group, named)
    assert world.status(group) == "running", "first every rank ends"
    ends(world, group)
    row = world.group(group)
    assert (row["status"], row["restarts"], row["failure"], row["ending"]) == ("pending", 1, None, None)
    assert world.store.get("node", node)["penalty"]["score"] > 0
    assert world.transitions(group)[-2:] == ["recovering", "requeued"]
    world.run_up(group)
    assert node not in world.group(group)["nodes"], "elsewhere, where it can"


@pytest.mark.parametrize(
    "named", [None, "user_code", "user_entrypoint", "gpu_oom", "host_oom", "killed", "unknown", "x"]
)
def test_what_the_program_did_itself_never_restarts_it(named):
    world, group = running(max_restarts=9, on=[*ALL, "user_code", "gpu_oom"])  # as another version might have let by
    fails(world, group, named)
    ends(world, group)
    assert (world.status(group), world.group(group)["restarts"]) == ("failed", 0)


def test_without_recovery_or_another_class_it_fails():
    for recovery in ({}, {"max_restarts": 3, "on": ["cuda_init"]}, {"max_restarts": 0, "on": ALL}):
        world, group = running(**recovery)
        fails(world, group, "nccl_init")
        ends(world, group)
        assert world.status(group) == "failed", recovery


def test_restarts_are_counted_and_spent():
    world, group = running(max_restarts=2, on=ALL)
    for _ in range(2):
        fails(world, group, "nccl_init")
        ends(world, group)
        assert world.status(group) == "pending"
        world.run_up(group)
    fails(world, group, "nccl_init")
    ends(world, group)
    row = world.group(group)
    assert (row["status"], row["failure"]["class"], row["restarts"]) == ("failed", "nccl_init", 2)
    events = [event["text"] for _, event in world.store.scan("event", f"{group}/")]
    assert "Its 2 restarts are spent." in events[-1]


def test_the_cause_is_known_only_when_all_have_ended():
    """The peer of a rank whose code failed says nccl first; by the hosts' clocks the code was earlier."""
    world, group = running(max_restarts=3, on=ALL)
    fails(world, group, "nccl_timeout", rank=1, at_ms=1_500)
    fails(world, group, None, rank=0, at_ms=1_000)
    row = world.group(group)
    assert (row["status"], row["failure"]["class"], row["restarts"]) == ("failed", "user_code", 0)


def test_lost_nodes_count_too_and_a_spent_group_fails_from_recovering():
    world, group = running(max_restarts=1, on=[])
    world.lose(world.group(group)["nodes"][0])
    ends(world, group)
    assert (world.status(group), world.group(group)["restarts"]) == ("pending", 1)
    world.run_up(group)
    node = world.group(group)["nodes"][0]
    world.lose(node)
    assert (world.status(group), world.group(group)["ending"]) == ("recovering", "failed")
    ends(world, group)
    row = world.group(group)
    assert (row["status"], row["failure"]["class"], row["failure"]["rank"], row["restarts"]) == (
        "failed", "node_lost", None, 1,
    )  # fmt: skip
    assert node in row["failure"]["text"]


def test_without_recovery_lost_nodes_restart_it_without_an_end():
    world, group = running()
    for _ in range(5):
        node = world.group(group)["nodes"][0]
        world.lose(node)
        ends(world, group)
        world.rejoin(node)
        world.run_up(group)
    assert world.group(group)["restarts"] == 5


def test_a_stop_wins_over_spent_restarts():
    world, group = running(max_restarts=0, on=[])
    world.lose(world.group(group)["nodes"][0])
    assert world.status(group) == "recovering"
    world.do("StopGroup", group_id=group, by="ada")
    ends(world, group)
    assert world.status(group) == "stopped"


def test_a_start_that_fails_for_the_infrastructure_restarts_too():
    world = World({"n1": 1})
    group = world.submit(recovery={"max_restarts": 1, "on": ALL})
    for _ in range(3):
        world.control()
        world.obey(group) if world.status(group) == "scheduling" else None
    task = world.tasks(group)[0]
    fails(world, group, "container_create")
    world.clean(group)
    assert task["order"] == "start" and world.status(group) == "pending"
