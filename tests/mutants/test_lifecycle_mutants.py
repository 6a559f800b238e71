"""Each deliberate bug in the life of groups is found by the scenario that names it; without it the scenario holds."""

import contextlib
from typing import Any

import pytest

from tests.mutants.lifecycle_mutants import MUTANTS
from tests.unit.state.world import World, document

S = 1000


def running(**training: Any) -> tuple[World, str]:
    world = World({"n1": 1, "n2": 1, "n3": 1})
    group = world.submit(2, 1, **training)
    world.run_up(group)
    return world, group


def paused(**training: Any) -> tuple[World, str]:
    world, group = running(**training)
    world.do("PauseGroup", group_id=group, by="ada")
    world.obey(group)
    world.clean(group)
    return world, group


def nobody_else_gets_its_checkpoints() -> bool:
    world, _ = paused(checkpoint_path="/data/run")
    return world.try_submit(document(checkpoint_path="/data/run")).code == "checkpoint_path_in_use"


def a_stop_wins() -> bool:
    world, group = running()
    world.do("PauseGroup", group_id=group, by="ada")
    world.do("StopGroup", group_id=group, by="bo")
    world.obey(group)
    return world.status(group) == "stopped"


def all_that_it_ran_counts() -> bool:
    world, group = running(deadline_s=100)
    world.control(70 * S)
    world.do("PauseGroup", group_id=group, by="ada")
    world.obey(group)
    world.clean(group)
    world.do("ResumeGroup", group_id=group, by="ada")
    world.run_up(group)
    world.control(40 * S)
    return world.group(group)["ending"] == "failed"


def being_rolled_back_is_waiting() -> bool:
    world = World({"n1": 1})
    group = world.submit(max_wait_s=300)
    for _ in range(20):
        world.control(61 * S)
        if world.status(group) == "failed":
            return True
        world.clean(group)
    return False


def a_programs_own_failure_ends_it() -> bool:
    world, group = running(recovery={"max_restarts": 3, "on": ["nccl_init", "user_code"]})
    world.report(world.tasks(group)[0], "exited", exit_code=1)
    world.obey(group)
    return world.status(group) == "failed"


def a_consequence_restarts_nothing() -> bool:
    world, group = running(recovery={"max_restarts": 3, "on": ["nccl_init"]})
    cause, consequence = world.tasks(group)
    named: dict[str, Any] = {"class": "nccl_init"}
    world.report(consequence, "exited", exit_code=1, at_ms=1_500, **named)
    world.report(cause, "exited", exit_code=1, at_ms=1_000)
    return world.status(group) == "failed"


SCENARIOS = {
    "pause-gives-the-path-away": nobody_else_gets_its_checkpoints,
    "pause-wins-over-a-stop": a_stop_wins,
    "deadline-begins-anew": all_that_it_ran_counts,
    "wait-begins-anew": being_rolled_back_is_waiting,
    "restarts-what-the-program-did": a_programs_own_failure_ends_it,
    "restarts-before-the-cause-is-known": a_consequence_restarts_nothing,
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
@pytest.mark.parametrize("mutated", [False, True])
def test_mutant_is_killed(name, mutated):
    with MUTANTS[name]() if mutated else contextlib.nullcontext():
        assert SCENARIOS[name]() is not mutated
