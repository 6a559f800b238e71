"""deadline_s and max_wait_s: counted by the leader's stamps, over attempts, pauses and leaders."""

import pytest

from mesh.core.control.decide import Now, decide
from tests.unit.state.world import World

S = 1000


def running(**limits) -> tuple[World, str]:
    world = World({"n1": 1, "n2": 1, "n3": 1})
    group = world.submit(2, 1, **limits)
    world.run_up(group)
    return world, group


def failed_by(world: World, pass_s: float) -> list[str]:
    return [item["over"] for item in world.control(int(pass_s * S)) if item["t"] == "FailGroup"]


def test_a_group_ends_when_it_has_run_for_its_deadline():
    world, group = running(deadline_s=100)
    assert failed_by(world, 90) == []
    assert failed_by(world, 11) == ["deadline_over"]
    row = world.group(group)
    assert (row["status"], row["ending"], row["failure"]["class"], row["failure"]["rank"]) == (
        "running", "failed", "walltime", None,
    )  # fmt: skip
    assert {task["order"] for task in world.tasks(group)} == {"stop"}, "its ranks get their grace to save"
    assert failed_by(world, 1) == [], "said once"
    world.obey(group)
    row = world.group(group)
    assert row["status"] == "failed" and "deadline_s of 100 s" in row["failure"]["text"]
    assert world.kinds(group)[-4:] == ["deadline_over", "rank_exited", "rank_exited", "failed"]


def test_ranks_that_save_and_exit_zero_do_not_make_it_a_success():
    world, group = running(deadline_s=10)
    failed_by(world, 11)
    world.finish(group, 0)
    assert world.status(group) == "failed"


def test_a_host_lost_in_its_last_grace_does_not_bring_it_back():
    world, group = running(deadline_s=10)
    failed_by(world, 11)
    first, second = world.tasks(group)
    world.report(second, "exited")
    world.lose(first["node"])
    assert (world.status(group), world.group(group)["failure"]["class"]) == ("failed", "walltime")


def test_what_it_ran_before_counts_and_what_it_waited_does_not():
    world, group = running(deadline_s=100)
    world.control(60 * S)
    world.do("PauseGroup", group_id=group, by="ada")
    world.obey(group)
    world.clean(group)
    world.control(1000 * S)
    assert world.status(group) == "paused", "no limit of a paused group"
    world.do("ResumeGroup", group_id=group, by="ada")
    world.run_up(group)
    assert 60 * S <= world.group(group)["ran_ms"] < 70 * S
    assert failed_by(world, 25) == []
    assert failed_by(world, 15) == ["deadline_over"]


def test_the_next_leader_counts_on():
    world, group = running(deadline_s=100)
    world.control(60 * S)
    world.new_leader()
    assert failed_by(world, 30) == []
    world.new_leader()
    assert failed_by(world, 11) == ["deadline_over"]
    assert world.status(group) == "running"


@pytest.mark.parametrize("back_s", [3600, 86_400 * 365])
def test_a_leader_whose_clock_was_set_back_ends_it_no_later(back_s):
    world, _ = running(deadline_s=100)
    mono_ms, wall_ms = 5 * S, world.now_ms - back_s * S
    world.new_leader()
    assert decide(world.view, Now(mono_ms, wall_ms), world.memory) == []
    late = decide(world.view, Now(mono_ms + 101 * S, wall_ms + 101 * S), world.memory)
    assert [item["t"] for item in late] == ["FailGroup"]


def test_a_group_that_waits_too_long_fails_and_says_for_what():
    world = World({"n1": 1})
    group = world.submit(2, 1, max_wait_s=300)
    world.control(5 * S)
    assert failed_by(world, 290) == []
    assert failed_by(world, 10) == ["wait_over"]
    row = world.group(group)
    assert (row["status"], row["failure"]["class"]) == ("failed", "unschedulable")
    assert "max_wait_s of 300 s" in row["failure"]["text"] and "needs 2 nodes" in row["failure"]["text"]
    assert world.store.get("active", group) is None


def test_being_placed_and_rolled_back_is_waiting_too():
    world = World({"n1": 1})
    group = world.submit(max_wait_s=300)
    for _ in range(20):
        if failed_by(world, 61):
            break
        assert world.status(group) in ("pending", "scheduling"), "claims that never come"
        if world.group(group)["attempt"]:
            world.clean(group)
    assert world.status(group) == "failed" and world.group(group)["rollbacks"] >= 2
    world.clean(group)
    assert not list(world.store.scan("hold"))


def test_a_wait_after_a_run_is_a_new_one():
    world, group = running(max_wait_s=300)
    assert failed_by(world, 1000) == []
    world.lose(world.group(group)["nodes"][0])
    world.obey(group)
    assert (world.status(group), failed_by(world, 290)) == ("pending", [])


def test_rows_of_an_older_version_have_waited_since_they_were_submitted():
    world = World({"n1": 1})
    group = world.submit(2, 1, max_wait_s=300)
    row = world.group(group)
    del row["waits_since_ms"]
    world.feed(world.idx, [("group", group, row)])
    assert failed_by(world, 301) == ["wait_over"]


def test_at_the_moment_of_its_end_it_is_not_placed():
    world = World()
    group = world.submit(max_wait_s=10)
    world.control(1)
    world.now_ms += 11 * S
    world.join("n1", 1)
    assert {item["t"] for item in world.control()} == {"FailGroup"}
    assert world.status(group) == "failed"


def test_many_at_once_go_in_several_passes():
    world = World()
    groups = [world.submit(max_wait_s=10) for _ in range(100)]
    assert len(failed_by(world, 11)) == 64
    assert len(failed_by(world, 0.1)) == 36
    assert {world.status(group) for group in groups} == {"failed"}


def test_without_limits_nothing_ends():
    world, group = running()
    assert failed_by(world, 10**8) == []
    assert world.status(group) == "running"
