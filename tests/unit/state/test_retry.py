"""Attempts that come to nothing: the next ones are made ever more rarely, and say what for."""

import pytest

from schemas.limits import ATTEMPTS_MAX, REBUILD_RECOVERED_MS, RETRIES_AT_ONCE, RETRY_LONGEST_MS
from tests.property.state_invariants import violations
from tests.unit.state.world import World

FULL = "checkpoint_path /data/run has 0 MiB free"
HOUR_MS = 3_600_000


def unclaimable(world, group):
    """Whatever host it is placed on refuses its claim."""
    for task in world.tasks(group):
        if task["status"] == "bound":
            world.report(task, "claim_failed", code="disk_full", text=FULL)
    world.clean(group)


def hours(world, group, count, step_ms=1_000):
    """Attempts in that time. Others that were placed get on."""
    until_ms = world.now_ms + int(count * HOUR_MS)
    before = world.group(group)["attempt"]
    while world.now_ms < until_ms:
        world.control(step_ms)
        if world.status(group) == "scheduling":
            unclaimable(world, group)
    return world.group(group)["attempt"] - before


def test_what_fails_on_every_node_is_tried_ever_more_rarely():
    world = World({f"n{number}": 1 for number in range(40)})
    group = world.submit(1, 1)
    assert hours(world, group, 0.5) <= RETRIES_AT_ONCE + 16
    assert hours(world, group, 2, 10_000) <= 2 * HOUR_MS // RETRY_LONGEST_MS + 1
    assert world.status(group) == "pending" and violations(world.store) == []


def test_the_first_tries_follow_at_once():
    world = World({"n1": 1, "n2": 1, "n3": 1, "n4": 1})
    group = world.submit(1, 1)
    for attempt in range(1, RETRIES_AT_ONCE + 1):
        world.control(5)
        assert world.group(group)["attempt"] == attempt
        unclaimable(world, group)
    world.control(5)
    assert world.status(group) == "pending"


def test_it_keeps_nobody_waiting_meanwhile():
    world = World({"n1": 1})
    broken = world.submit(1, 1, priority="highest")
    hours(world, broken, 0.2)
    other = world.submit(1, 1, name="other")
    for _ in range(45):
        world.control(1_000)
        if world.status(broken) == "scheduling":
            unclaimable(world, broken)
        world.obey(other)
        if world.status(other) == "running":
            return
    raise AssertionError(f"it waits for {world.group(other)['pending_reason']}")


def test_while_it_waits_the_reason_names_what_it_failed_for():
    world = World({"n1": 1, "n2": 1})
    group = world.submit(1, 1)
    for _ in range(600):
        world.control(500)
        if world.status(group) == "scheduling":
            unclaimable(world, group)
        reason = world.group(group)["pending_reason"]
        assert FULL in reason["text"], reason
    assert reason["code"] == "disk_full" and "the next is made after" in reason["text"]


def test_max_wait_says_what_it_failed_for():
    world = World({"n1": 1})
    group = world.submit(1, 1, max_wait_s=60)
    hours(world, group, 0.05)
    assert world.status(group) == "failed" and FULL in world.group(group)["failure"]["text"]


def test_a_lost_or_drained_node_is_no_try():
    world = World({"n1": 1, "n2": 1, "n3": 1, "n4": 1, "n5": 1})
    group = world.submit(1, 1)
    for _ in range(4):
        world.control(5)
        world.lose(world.group(group)["nodes"][0])
    assert "retry" not in world.group(group)
    world.control(5)
    assert world.status(group) == "scheduling"


def test_ranks_that_their_hosts_end_one_after_the_other_count_too():
    world = World({f"n{number}": 1 for number in range(8)})
    group = world.submit(1, 1)
    for _ in range(RETRIES_AT_ONCE):
        world.run_up(group)
        world.report(world.tasks(group)[0], "exited", exit_code=None, why="lost", text="disk full")
        world.clean(group)
    world.control(5)
    assert world.status(group) == "pending"
    assert "disk full" in world.group(group)["pending_reason"]["text"]


def test_an_attempt_that_ran_for_long_begins_the_count_anew():
    world = World({f"n{number}": 1 for number in range(8)})
    group = world.submit(1, 1)
    for _ in range(RETRIES_AT_ONCE + 2):
        world.run_up(group)
        world.now_ms += REBUILD_RECOVERED_MS
        world.report(world.tasks(group)[0], "exited", exit_code=None, why="lost")
        world.clean(group)
        world.control(5)
        assert world.status(group) == "scheduling"


@pytest.mark.parametrize("ends", ["claim", "host", "pause"])
def test_no_group_is_left_without_a_number_for_its_next_attempt(ends):
    world = World({"n1": 1})
    group = world.submit(1, 1)
    row = world.group(group)
    world.store.put("group", group, row | {"attempt": ATTEMPTS_MAX - 1})
    world.view.extend(world.idx, world.store.take_changes())
    world.control(5)
    if ends == "claim":
        unclaimable(world, group)
    else:
        world.run_up(group)
    if ends == "host":
        world.report(world.tasks(group)[0], "exited", exit_code=None, why="lost")
    if ends == "pause":
        world.do("PauseGroup", group_id=group, by="ada")
        world.obey(group)
        assert world.do("ResumeGroup", group_id=group, by="ada").code == "attempts_spent"
        return
    row = world.group(group)
    assert (row["status"], row["failure"]["class"]) == ("failed", "unschedulable")
    assert "9999 times" in row["failure"]["text"]
