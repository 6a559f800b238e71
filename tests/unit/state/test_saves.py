"""The ledger of checkpoints, what is at risk, and the stop that waits for the next one."""

import pytest

from schemas.limits import LEDGER_MAX, RETENTION_LEAST_MS
from schemas.rules.checkpoints.at_risk import work_at_risk
from tests.unit.state.world import World

HOUR_MS = 3_600_000


@pytest.fixture
def world():
    return World({"n1": 2, "n2": 2})


@pytest.fixture
def group(world):
    return running(world)


def running(world, resume=None, sees=None, checkpoint_path="/data/run", **over):
    where = {"checkpoint_path": checkpoint_path} if checkpoint_path else {}
    group = world.submit(2, 2, **where, **over)
    started(world, group, resume, sees)
    return group


def started(world, group, resume=None, sees=None):
    for _ in range(40):
        world.control(1000)
        if world.status(group) == "scheduling":
            break
    for task in world.tasks(group):
        world.report(task, "claimed", resume=resume, **({"sees": sees} if sees else {}))
    world.control()
    world.obey(group)
    assert world.status(group) == "running"


def save(world, group, step, age_ms=0, rank=0, mark=None, **over):
    facts = {"pick": f"step-{step}", "step": step, "mark": mark or f"m{step}", "bytes": 1000, "files": 3, "took_ms": 40}
    return world.report(world.tasks(group)[rank], "checkpoint", seq=0, age_ms=age_ms, **{**facts, **over})


def at_risk(world, group):
    risk = work_at_risk(world.group(group))
    assert risk is not None
    return risk


def ledger(world, group):
    return [row for _, row in world.store.scan("save", f"{group}/")]


def picks(world, group):
    return [(row["pick"], row["attempt"]) for row in ledger(world, group)]


def test_free_space_is_that_of_the_newest_and_unknown_where_untold(world, group):
    save(world, group, 1, free_bytes=5000)
    assert world.group(group)["saved"]["free_bytes"] == 5000
    save(world, group, 2)
    assert "free_bytes" not in world.group(group)["saved"]


def test_each_checkpoint_is_one_line(world, group):
    save(world, group, 10)
    save(world, group, 10)
    world.now_ms += 60_000
    save(world, group, 20, age_ms=5_000)
    assert picks(world, group) == [("step-10", 1), ("step-20", 1)]
    first, second = ledger(world, group)
    assert (second["bytes"], second["files"], second["took_ms"], second["complete"]) == (1000, 3, 40, True)
    assert 54_000 < second["saved_ms"] - first["saved_ms"] < 56_000, "when it was written, not when it was seen"
    assert world.group(group)["saved"]["step"] == 20
    save(world, group, 20, mark="again")
    assert [row["mark"] for row in ledger(world, group)] == ["m10", "m20", "again"], "saved once more"


def test_only_the_node_of_rank_0_is_believed(world, group):
    save(world, group, 10, rank=1)
    assert ledger(world, group) == []


def test_what_was_there_before_is_not_this_attempts(world):
    """A group that resumes from what another one left, and an agent that was started again and looks anew."""
    resume = {"path": "/data/run/step-5", "step": 5, "source": "checkpoint_path"}
    sees = {"pick": "step-5", "digest": "aa", "text": "x", "mark": "m5"}
    group = running(world, resume, sees)
    assert [(row["pick"], row["attempt"], row["restores"]) for row in ledger(world, group)] == [("step-5", 0, [1])]
    assert ledger(world, group)[0]["bytes"] is None
    save(world, group, 5, age_ms=0)
    (row,) = ledger(world, group)
    assert (row["attempt"], row["bytes"]) == (0, 1000)
    assert not at_risk(world, group).saved
    save(world, group, 6)
    assert picks(world, group) == [("step-5", 0), ("step-6", 1)]
    assert at_risk(world, group).saved


def test_without_a_look_at_the_claim_the_stamps_tell(world, group):
    save(world, group, 5, age_ms=HOUR_MS)
    save(world, group, 6)
    assert picks(world, group) == [("step-5", 0), ("step-6", 1)]


def test_what_an_attempt_resumed_from_and_what_it_passed_over(world, group):
    save(world, group, 10)
    world.lose("n2")
    world.obey(group)
    world.clean(group)
    world.rejoin("n2")
    rejected = [{"name": "step-20", "why": "part-3 is missing"}]
    sees = {"pick": "step-10", "digest": "aa", "text": "x", "mark": "m10", "rejected": rejected}
    started(world, group, {"path": "/data/run/step-10", "step": 10, "source": "checkpoint_path"}, sees)
    done, broken = ledger(world, group)
    assert (done["pick"], done["attempt"], done["restores"]) == ("step-10", 1, [2])
    assert (broken["pick"], broken["complete"], broken["why"]) == ("step-20", False, "part-3 is missing")
    save(world, group, 20)
    assert picks(world, group)[-1] == ("step-20", 2)


def test_a_late_report_of_an_attempt_that_is_over_changes_nothing(world, group):
    task = world.tasks(group)[0]
    world.lose("n2")
    world.obey(group)
    world.clean(group)
    world.rejoin("n2")
    started(world, group)
    facts = {"pick": "step-9", "step": 9, "mark": "m9", "bytes": 1, "files": 1, "age_ms": 0, "took_ms": 0}
    world.report(task, "checkpoint", seq=0, **facts)
    assert ledger(world, group) == []


def test_the_last_checkpoint_is_told_after_the_end(world, group):
    world.do("StopGroup", group_id=group, by="ada")
    world.obey(group)
    world.clean(group)
    assert world.status(group) == "stopped"
    save(world, group, 77)
    assert picks(world, group) == [("step-77", 1)] and world.status(group) == "stopped"


def test_what_was_removed_is_marked(world, group):
    for step in (1, 2, 3):
        save(world, group, step)
    world.report(world.tasks(group)[0], "checkpoints_removed", seq=0, removed=["step-1", "step-2", "no-such"])
    assert [row["removed_ms"] is not None for row in ledger(world, group)] == [True, True, False]
    before = world.group(group)
    world.report(world.tasks(group)[0], "checkpoints_removed", seq=0, removed=["step-1"])
    assert world.group(group) == before


def test_the_ledger_is_bounded_and_goes_with_its_group(world, group):
    for step in range(1, LEDGER_MAX + 20):
        save(world, group, step)
    assert len(ledger(world, group)) == LEDGER_MAX and ledger(world, group)[0]["step"] == 20
    other = world.submit(1, 1)
    world.do("StopGroup", group_id=group, by="ada")
    world.obey(group)
    world.clean(group)
    world.now_ms += RETENTION_LEAST_MS
    assert world.do("DeleteGroup", group_id=group).ok
    assert ledger(world, group) == [] and world.store.get("group", other) is not None


def test_work_at_risk(world, group):
    row = world.group(group)
    risk = at_risk(world, group)
    assert (risk.cards, risk.saved, risk.since_ms) == (4, False, row["runs_since_ms"])
    assert risk.words(risk.since_ms + 43 * 60_000) == "2.9 GPU-hours lost if killed now"
    assert risk.words(risk.since_ms + 30_000) == "0.03 GPU-hours lost if killed now"
    assert risk.gpu_hours(risk.since_ms - 5_000) == 0.0, "a clock that is behind"
    world.now_ms += 2 * HOUR_MS
    save(world, group, 10, age_ms=HOUR_MS)
    risk = at_risk(world, group)
    assert risk.saved and abs(risk.gpu_hours(world.now_ms) - 4.0) < 0.001
    world.do("StopGroup", group_id=group, by="ada")
    assert work_at_risk(world.group(group)) is None


def test_without_a_checkpoint_all_of_the_attempt_is_at_risk(world):
    group = running(world, checkpoint_path=None)
    world.now_ms += HOUR_MS
    assert abs(at_risk(world, group).gpu_hours(world.now_ms) - 4) < 0.01


def stop_after(world, group, within_s=600):
    return world.do("StopAfterCheckpoint", group_id=group, by="ada", within_s=within_s)


def test_a_stop_after_the_next_checkpoint(world, group):
    save(world, group, 10)
    assert stop_after(world, group).data["status"] == "running"
    assert world.kinds(group)[-1] == "stop_asked"
    save(world, group, 10)
    world.control(1000)
    assert world.status(group) == "running", "that one was known"
    save(world, group, 20)
    assert world.status(group) == "stopping" and {task["order"] for task in world.tasks(group)} == {"stop"}
    events = [row["text"] for _, row in world.store.scan("event", f"{group}/")]
    assert "Stop asked by ada, after checkpoint step-20; the ranks are ending." in events
    world.obey(group)
    assert world.status(group) == "stopped"


def test_it_waits_no_longer_than_it_was_told(world, group):
    stop_after(world, group, 60)
    world.control(58_000)
    assert world.status(group) == "running"
    (stop,) = world.control(3_000)
    assert (stop["t"], stop["by"]) == ("StopGroup", "ada, without a checkpoint in time")
    assert world.status(group) == "stopping"
    assert world.control(1000) == []


def test_a_new_leader_keeps_the_time(world, group):
    stop_after(world, group, 60)
    world.new_leader()
    world.control(30_000)
    world.new_leader()
    assert world.status(group) == "running"
    world.control(31_000)
    assert world.status(group) == "stopping"


def test_what_does_not_compute_is_stopped_at_once(world):
    waiting = world.submit(2, 2, checkpoint_path="/data/waiting")
    assert stop_after(world, waiting).data["status"] == "stopped"
    group = running(world)
    stop_after(world, group)
    world.lose("n2")
    assert world.status(group) == "recovering"
    (stop, *_) = [item for item in world.control() if item["t"] == "StopGroup"]
    assert stop["group_id"] == group
    world.obey(group)
    assert world.status(group) == "stopped", "it is not started again for a stop"


def test_a_stop_now_needs_no_checkpoint(world, group):
    stop_after(world, group)
    assert world.do("StopGroup", group_id=group, by="bo").ok and world.status(group) == "stopping"
    assert stop_after(world, group).code == "already_asked"


def test_refusals(world):
    group = running(world, checkpoint_path=None)
    assert stop_after(world, group).code == "no_checkpoint_path"
    assert stop_after(world, "tg-00000000000000000000").code == "no_such_group"
    world.do("StopGroup", group_id=group, by="ada")
    world.obey(group)
    assert stop_after(world, group).data["status"] == "stopped"
