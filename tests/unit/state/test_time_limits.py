"""FailGroup: what the leader says is judged against what is there now."""

import pytest

from tests.unit.state.world import World, document

UNKNOWN = "tg-00000000000000000000"


def running(**limits) -> tuple[World, str]:
    world = World({"n1": 1})
    group = world.submit(**limits)
    world.run_up(group)
    return world, group


@pytest.mark.parametrize("over", ["deadline_over", "wait_over", "stalled"])
def test_what_does_not_fit_is_refused(over):
    world, group = running(deadline_s=60, max_wait_s=60)
    assert world.do("FailGroup", group_id=UNKNOWN, attempt=1, over=over).code == "no_such_group"
    wrong = world.do("FailGroup", group_id=group, attempt=1 if over == "wait_over" else 2, over=over)
    assert wrong.code == ("wrong_status" if over == "wait_over" else "wrong_attempt")
    world.do("StopGroup", group_id=group, by="ada")
    assert world.do("FailGroup", group_id=group, attempt=1, over=over).code == "wrong_status", "a user's stop wins"


@pytest.mark.parametrize("over", ["deadline_over", "stalled"])
def test_a_rank_that_failed_first_stays_the_cause(over):
    world = World({"n1": 1, "n2": 1})
    group = world.submit(2, 1, deadline_s=1)
    world.run_up(group)
    world.report(world.tasks(group)[0], "exited", exit_code=3)
    assert world.do("FailGroup", group_id=group, attempt=1, over=over, text="silent").code == "already_ending"
    world.obey(group)
    assert world.group(group)["failure"]["class"] == "user_code"


def test_a_limit_that_the_document_does_not_name():
    world, group = running()
    assert world.do("FailGroup", group_id=group, attempt=1, over="deadline_over").code == "no_such_limit"
    waiting = world.submit()
    assert world.do("FailGroup", group_id=waiting, attempt=0, over="wait_over").code == "no_such_limit"
    assert (world.status(group), world.status(waiting)) == ("running", "pending")


def test_a_group_that_stood_still_says_what_was_seen():
    world, group = running()
    seen = "no step for 31 min; cards below 5 %, logs and files silent on every rank for 30 min or longer"
    assert world.do("FailGroup", group_id=group, attempt=1, over="stalled", text=seen).ok
    world.obey(group)
    row = world.group(group)
    assert (row["status"], row["failure"]["class"]) == ("failed", "stalled") and seen in row["failure"]["text"]
    assert "stalled" in world.kinds(group)


def test_a_service_that_nobody_asks_stands_still_by_nature():
    world = World({"n1": 1})
    body = document()
    service = {**body, "task_type": "inference", "inference": body.pop("training")}
    group = world.try_submit(service).data["group_id"]
    world.run_up(group)
    assert world.do("FailGroup", group_id=group, attempt=1, over="stalled", text="silent").code == "no_such_limit"
    assert world.status(group) == "running"


def test_a_stop_wins_over_its_last_grace():
    world, group = running(deadline_s=1)
    world.do("FailGroup", group_id=group, attempt=1, over="deadline_over")
    world.do("StopGroup", group_id=group, by="ada")
    world.obey(group)
    assert world.status(group) == "stopped"
