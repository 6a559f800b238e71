"""Start, inherited phases and rollback."""

import pytest

from schemas.limits import PENALTY_UNIT, PHASE_TRIES
from tests.unit.state.world import World


@pytest.fixture
def world():
    return World({"n1": 2, "n2": 2})


@pytest.fixture
def group(world):
    made = world.submit(2, 2)
    world.control()
    return made


def start(world, group, **over):
    row = world.group(group)
    fields = {
        "attempt": row["attempt"],
        "claimed": [0, 1],
        "master": {"addr": "n1.example", "port": row["master"]["port"]},
        "resume": None,
        **over,
    }
    return world.do("StartGroup", group_id=group, **fields)


def test_no_rank_starts_before_all_are_claimed(world, group):
    assert start(world, group).code == "not_all_claimed"
    world.report(world.tasks(group)[0], "claimed")
    assert start(world, group).code == "not_all_claimed"
    assert {task["order"] for task in world.tasks(group)} == {"claim"}
    world.report(world.tasks(group)[1], "claimed")
    assert start(world, group, claimed=[0]).code == "not_all_claimed"
    assert start(world, group).ok
    assert [(task["status"], task["order"]) for task in world.tasks(group)] == [("starting", "start")] * 2


def test_an_old_leaders_repeat_is_refused(world, group):
    world.obey(group)
    assert start(world, group, attempt=2).code == "wrong_attempt"
    assert start(world, group).ok
    assert start(world, group).code == "wrong_status"
    assert world.transitions(group) == ["bound", "starting"]


def test_the_port_is_the_one_rank_0_holds(world, group):
    world.obey(group)
    assert start(world, group, master={"addr": "n1.example", "port": 20_000}).code == "wrong_port"


def test_the_resume_decision_is_recorded(world, group):
    world.obey(group)
    resume = {"path": "/data/run/step-7", "step": 7, "source": "checkpoint_path"}
    start(world, group, resume=resume)
    assert world.group(group)["resume"] == resume
    event = [row for _, row in world.store.scan("event", f"{group}/")][-1]
    assert (event["kind"], event["data"]["resume"]) == ("starting", resume)
    assert "/data/run/step-7" in event["text"]


def roll_back(world, group, **over):
    fields = {
        "attempt": 1,
        "code": "claim_timeout",
        "text": "rank 1 on n2 not claimed within 60 s.",
        "node": "n2",
        **over,
    }
    return world.do("RollbackGroup", group_id=group, **fields)


def test_rollback_while_claiming(world, group):
    world.report(world.tasks(group)[0], "claimed")
    assert roll_back(world, group).data["status"] == "pending"
    assert [(task["status"], task["order"]) for task in world.tasks(group)] == [("cancelled", "stop")] * 2
    assert [hold["state"] for _, hold in world.store.scan("hold")] == ["releasing"] * 2
    row = world.group(group)
    assert (row["rollbacks"], row["restarts"], row["attempt"], row["claimed"]) == (1, 0, 1, [])
    assert row["pending_reason"]["code"] == "claim_timeout"
    assert "n2" in row["pending_reason"]["text"]
    assert world.store.get("node", "n2")["penalty"]["score"] == PENALTY_UNIT
    assert world.store.get("node", "n1")["penalty"]["score"] == 0


def test_rollback_while_starting_waits_for_the_processes(world, group):
    world.obey(group)
    world.control()
    world.report(world.tasks(group)[0], "started")
    assert roll_back(world, group, code="start_timeout").data["status"] == "recovering"
    assert [(task["status"], task["order"]) for task in world.tasks(group)] == [
        ("running", "stop"),
        ("starting", "stop"),
    ]
    assert roll_back(world, group).code == "wrong_status"
    world.report(world.tasks(group)[1], "released")
    assert world.status(group) == "recovering"
    world.report(world.tasks(group)[0], "exited", exit_code=1)
    assert world.status(group) == "pending"
    assert (world.group(group)["rollbacks"], world.group(group)["restarts"], world.group(group)["failure"]) == (
        1,
        0,
        None,
    )
    assert world.transitions(group) == ["bound", "starting", "recovering", "requeued"]


def test_a_rollback_does_not_undo_a_failure(world, group):
    world.obey(group)
    world.control()
    world.report(world.tasks(group)[0], "exited", exit_code=1)
    assert roll_back(world, group).code == "already_ending"
    world.obey(group)
    assert world.transitions(group) == ["bound", "starting", "failed"]


@pytest.mark.parametrize("over", [{"attempt": 2}, {"node": "n9"}, {"node": None}])
def test_rollbacks_that_name_something_else(world, group, over):
    outcome = roll_back(world, group, **over)
    assert outcome.code == ("wrong_attempt" if "attempt" in over else "")


def test_running_groups_are_not_rolled_back(world, group):
    world.run_up(group)
    assert roll_back(world, group).code == "wrong_status"
    assert world.status(group) == "running"


def test_a_phase_is_inherited_a_bounded_number_of_times(world, group):
    for tries in range(1, PHASE_TRIES + 1):
        assert world.do("ContinuePhase", group_id=group, attempt=1, status="scheduling").data == {"tries": tries}
    assert world.do("ContinuePhase", group_id=group, attempt=1, status="scheduling").code == "phase_tries_spent"
    assert world.do("ContinuePhase", group_id=group, attempt=1, status="starting").code == "wrong_status"
    world.obey(group)
    start(world, group)
    assert world.group(group)["phase_deadline_tries"] == 0


def test_reasons_are_written_only_when_they_change(world):
    world.store.take_changes()
    held = world.submit(9, 9)
    reason = {"code": "behind", "text": "waits", "details": {"n": 1}}
    assert world.do("SetReasons", reasons={held: reason}).data == {"changed": 1}
    assert world.do("SetReasons", reasons={held: reason}).data == {"changed": 0}
    assert world.do("SetReasons", reasons={held: {**reason, "details": {"n": 2}}}).data == {"changed": 1}
    assert world.do("SetReasons", reasons={"tg-01kb89t3f89j6ct3adhq": reason}).data == {"changed": 0}


def test_reasons_of_a_group_that_is_not_waiting_are_dropped(world, group):
    assert world.do("SetReasons", reasons={group: {"code": "x", "text": "y"}}).data == {"changed": 0}
    assert world.group(group)["pending_reason"] is None


def test_addresses_are_those_of_the_last_start(world, group):
    world.obey(group)
    assert start(world, group, addresses=["n1.example", "n2.example"]).ok
    assert world.group(group)["addresses"] == ["n1.example", "n2.example"]
    assert roll_back(world, group, code="start_timeout").ok
    world.obey(group)
    world.clean(group)
    world.control(100_000)
    world.obey(group)
    assert start(world, group, attempt=2).ok
    assert "addresses" not in world.group(group)
