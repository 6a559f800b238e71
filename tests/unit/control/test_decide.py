"""What the controllers propose."""

import pytest

from mesh.core.control.decide import REASON_NUMBERS_MS, Memory, Now, decide, host_of
from mesh.core.control.view import View
from schemas.limits import CLAIM_DEADLINE_MS, IMAGE_PULL_MS, PHASE_TRIES, START_DEADLINE_MS
from schemas.rules.frameworks import NEED_ADDRESSES
from tests.unit.state.world import World


def names(proposals):
    return [proposal["t"] for proposal in proposals]


@pytest.fixture
def world():
    return World({"n1": 2, "n2": 2})


def test_nothing_to_do_on_an_idle_mesh(world):
    assert world.control() == []


def test_the_life_of_a_group(world):
    group = world.submit(2, 2)
    assert names(world.control()) == ["BindGroup"]
    assert world.control(1000) == []
    world.report(world.tasks(group)[0], "claimed", resume={"path": "/data/run/step-9", "step": 9})
    assert world.control(1000) == []
    world.report(world.tasks(group)[1], "claimed")
    (start,) = world.control(1000)
    assert start["t"] == "StartGroup"
    assert start["claimed"] == [0, 1]
    assert start["master"] == {"addr": "n1.example", "port": world.tasks(group)[0]["port"]}
    assert start["resume"] == {"path": "/data/run/step-9", "step": 9, "source": "checkpoint_path"}
    world.obey(group)
    assert world.control(70_000) == []
    assert world.status(group) == "running"


def test_an_explicit_resume_path_stays_that_path_at_every_attempt(world):
    group = world.submit(1, 2, resume_from_checkpoint="/data/base/step-1")
    for attempt in (1, 2):
        world.control(6000)
        world.report(world.tasks(group)[0], "claimed", resume={"path": "/data/run/step-9", "step": 9})
        (start,) = world.control()
        assert (start["attempt"], start["resume"]) == (
            attempt,
            {"path": "/data/base/step-1", "step": None, "source": "document"},
        )
        world.obey(group)
        world.lose(world.tasks(group)[0]["node"])


def test_without_a_checkpoint_the_start_is_from_zero(world):
    group = world.submit(1, 2)
    world.control()
    world.obey(group)
    (start,) = world.control()
    assert start["resume"] is None


def test_nothing_is_decided_on_a_picture_older_than_the_last_answer(world):
    world.submit(1, 1)
    memory = Memory(caught_up=world.idx + 1)
    assert decide(world.view, Now(0, 0), memory) == []
    memory.caught_up = world.idx
    assert names(decide(world.view, Now(0, 0), memory)) == ["BindGroup"]


def test_a_claim_that_takes_too_long_is_rolled_back_and_its_node_named(world):
    group = world.submit(2, 2)
    world.control()
    world.report(world.tasks(group)[0], "claimed")
    world.control(1000)
    assert world.control(59_000) == []
    (rollback,) = world.control(1_000)
    assert (rollback["t"], rollback["code"], rollback["node"]) == ("RollbackGroup", "claim_timeout", "n2")
    assert rollback["text"] == "Rank 1 on n2 not claimed within 60 s."
    assert world.status(group) == "pending"


def test_a_start_that_takes_too_long_is_rolled_back(world):
    group = world.submit(2, 2)
    world.control()
    world.obey(group)
    world.control()
    world.report(world.tasks(group)[0], "started")
    world.control(1000)
    (rollback,) = world.control(60_000)
    assert (rollback["code"], rollback["node"]) == ("start_timeout", "n2")
    assert world.status(group) == "recovering"
    assert names(world.control(61_000)) == []


def test_many_late_ranks_are_named_in_a_line():
    world = World({f"n{at}": 1 for at in range(1, 8)})
    world.submit(7, 1)
    world.control()
    world.control(1000)
    (rollback,) = world.control(60_000)
    assert (
        rollback["text"] == "Rank 0 on n1, rank 1 on n2, rank 2 on n3, rank 3 on n4 and 3 more not claimed within 60 s."
    )


def test_a_failed_claim_is_tried_elsewhere_at_once_and_here_after_a_rest():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(1, 2)
    world.control()
    world.report(world.tasks(group)[0], "claim_failed")
    world.clean(group)
    assert [proposal["placements"][0]["node"] for proposal in world.control()] == ["n2"]
    world.report(world.tasks(group)[0], "claim_failed")
    world.clean(group)
    for _ in range(5):
        assert "BindGroup" not in names(world.control(100))
    assert names(world.control(2000)) == ["BindGroup"]


def test_a_new_leader_continues_a_phase_with_a_fresh_deadline(world):
    group = world.submit(2, 2)
    world.control()
    world.control(59_000)
    world.new_leader()
    assert names(world.control(1000)) == ["ContinuePhase"]
    assert world.control(59_000) == []
    assert names(world.control(1_000)) == ["RollbackGroup"]
    assert world.status(group) == "pending"


def test_a_phase_is_inherited_at_most_so_often(world):
    group = world.submit(2, 2)
    world.control()
    for _ in range(PHASE_TRIES):
        world.new_leader()
        assert names(world.control(1000)) == ["ContinuePhase"]
    world.new_leader()
    (rollback,) = world.control(1000)
    assert (rollback["t"], rollback["code"]) == ("RollbackGroup", "leaders_changed")
    assert world.status(group) == "pending"


def test_a_phase_that_begins_under_a_leader_is_not_inherited(world):
    world.control()
    world.submit(2, 2)
    world.control()
    assert world.control(1000) == []


def test_a_new_leader_starts_what_was_fully_claimed(world):
    group = world.submit(2, 2)
    world.control()
    world.obey(group)
    world.new_leader()
    assert names(world.control()) == ["StartGroup"]


def test_two_leaders_that_decide_the_same_start_it_once(world):
    """The proposals of a deposed leader may still be applied after those of its successor."""
    group = world.submit(2, 2)
    world.control()
    world.obey(group)
    proposals = decide(world.view, Now(1, 1), Memory())
    world.control()
    assert [world.propose(proposal).ok for proposal in proposals] == [False]
    assert world.transitions(group) == ["bound", "starting"]


def test_a_former_leader_that_leads_again_acts_on_the_log_not_on_its_memory():
    world = World({"n1": 2})
    first = world.submit(1, 2)
    world.run_up(first)
    old_memory = world.memory
    world.new_leader()
    world.do("StopGroup", group_id=first, by="ada")
    world.obey(first)
    world.clean(first)
    second = world.submit(1, 2)
    world.run_up(second)
    world.memory = old_memory
    assert world.control(61_000) == []
    world.new_leader()
    assert world.control(61_000) == []
    assert (world.status(first), world.status(second)) == ("stopped", "running")
    assert {task["order"] for task in world.tasks(second)} == {"start"}


def test_reasons_are_set_once_and_follow_changes_of_code_at_once(world):
    first = world.submit(2, 2)
    held = world.submit(2, 2)
    assert names(world.control()) == ["BindGroup", "SetReasons"]
    assert world.group(held)["pending_reason"]["code"] == "insufficient_gpus"
    for _ in range(5):
        assert world.control(1000) == []
    world.lose("n2")
    assert "SetReasons" in names(world.control())
    assert {world.group(key)["pending_reason"]["code"] for key in (first, held)} == {"nodes_lost"}


def test_numbers_in_reasons_are_told_every_few_seconds():
    world = World({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    for _ in range(3):
        world.submit(1, 8)
    world.control()
    held = world.submit(2, 8)
    world.control()
    first = world.group(held)["pending_reason"]
    assert first["details"]["refused"] == {"busy": 3}
    runs = list(world.view.attempts)
    world.do("StopGroup", group_id=runs[0], by="ada")
    assert names(world.control(1000)) == []
    assert world.group(held)["pending_reason"] == first
    (told,) = world.control(REASON_NUMBERS_MS)
    assert told["reasons"][held]["details"]["refused"] == {"cleaning": 1, "busy": 2}


def test_an_unchanged_picture_is_not_planned_again():
    world = World({"n1": 1})
    world.run_up(world.submit(1, 1))
    world.submit(1, 1)
    world.control()
    passes = set()
    for _ in range(20):
        world.control(1000)
        passes.add(world.memory.planned)
    assert len(passes) <= 5
    world.join("n2", 1)
    world.control()
    assert world.view.waiting == {}


def test_no_admission_churn_on_fragmented_cards():
    world = World({"n1": 4, "n2": 4})
    for _ in range(2):
        world.run_up(world.submit(2, 1, name="filler"))
    world.run_up(world.submit(2, 1, name="filler"))
    pair = world.submit(1, 2)
    sent = [names(world.control(1000)) for _ in range(30)]
    assert sent == [["SetReasons"]] + [[]] * 29
    text = world.group(pair)["pending_reason"]["text"]
    assert "2 GPUs free in total, at most 1 on one node" in text


@pytest.mark.parametrize(
    ("addr", "host"),
    [("n1.example:7460", "n1.example"), ("10.0.0.1:7460", "10.0.0.1"), ("[fd00::1]:7460", "fd00::1"), ("bare", "bare")],
)
def test_master_addresses(addr, host):
    assert host_of(addr) == host


def test_old_groups_cost_the_picture_nothing():
    world = World({"n1": 1})
    for _ in range(20):
        group = world.submit(1, 1)
        world.run_up(group)
        world.finish(group)
    assert (world.view.waiting, world.view.attempts, world.view.unstarted) == ({}, {}, {})
    assert world.view.size() == 1


def test_a_snapshot_replaces_the_picture(world):
    world.submit(1, 1)
    view = View()
    view.reset(5, [("group", "tg-x", {**world.group(world.submit(1, 1)), "group_id": "tg-x"})])
    assert list(view.waiting) == ["tg-x"]
    view.reset(6, [])
    assert (view.waiting, view.idx, view.size()) == ({}, 6, 0)


def test_a_claim_that_gets_an_image_has_hours_and_its_start_a_minute():
    world = World()
    world.join("d1", 1, runtime="docker")
    group = world.submit(image="team/pt:1")
    world.control()
    world.control()
    world.control(IMAGE_PULL_MS)
    assert world.status(group) == "scheduling"
    world.obey(group)
    world.control()
    assert world.status(group) == "starting"
    world.control()
    world.control(START_DEADLINE_MS)
    assert world.status(group) == "recovering"


def test_a_claim_that_gets_an_image_is_given_up_at_last():
    world = World()
    world.join("d1", 1, runtime="docker")
    world.submit(image="team/pt:1")
    world.control()
    world.control()
    (rollback,) = world.control(IMAGE_PULL_MS + CLAIM_DEADLINE_MS)
    assert (rollback["t"], rollback["code"]) == ("RollbackGroup", "claim_timeout")


@pytest.mark.parametrize("framework", ["tensorflow", "paddle", "ddp", "jax"])
def test_all_addresses_go_to_frameworks_whose_ranks_must_know_them(world, framework):
    group = world.submit(2, 2, framework=framework)
    world.control()
    world.obey(group)
    (start,) = world.control()
    assert start.get("addresses") == (["n1.example", "n2.example"] if framework in NEED_ADDRESSES else None)
