"""Submission, stop and deletion of groups."""

import pytest

from tests.unit.state.world import World, document

GROUP = "tg-01kb89t3f89j6ct3adhq"


def test_a_group_begins_pending_with_its_place_in_the_log():
    world = World()
    group = world.submit(2, 4, priority="high", checkpoint_path="/data/run/")
    row = world.group(group)
    assert (row["status"], row["attempt"], row["submit_idx"], row["priority"]) == ("pending", 0, world.idx, 1)
    assert row["checkpoint_path"] == "/data/run"
    assert world.store.get("active", group) == {"status": "pending"}
    assert world.kinds(group) == ["submitted"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "a", "task_type": 7},
        {"name": "a", "priority": "urgent"},
        {"name": "a", "priority": ["high"]},
        {"name": "a", "on_isolation": "maybe"},
        {"name": "a", "training": {"n_nodes": 0}},
        {"name": "a", "training": {"n_nodes": True}},
        {"name": "a", "training": {"n_nodes": 2.0}},
        {"name": "a", "training": {"per_node_gpu": -1}},
        {"name": "a", "training": {"per_node_gpu": 65}},
        {"name": "a", "training": {"gpu_type": {"H100": 1}}},
        {"name": "a", "training": {"gpu_type": [1]}},
    ],
)
def test_a_document_without_a_shape_is_refused(body):
    world = World()
    outcome = world.try_submit(body)
    assert outcome.code == "invalid_document"
    assert "not created" in outcome.text
    assert not list(world.store.scan("group"))


def test_an_id_is_used_once():
    world = World()
    assert world.try_submit(document(), GROUP).ok
    assert world.try_submit(document(), GROUP).code == "group_exists"


@pytest.mark.parametrize(
    ("other", "words"),
    [("/data/run/sub", "lies within that of"), ("/data", "holds that of"), ("/data/run2", ""), ("/data/ru", "")],
)
def test_a_checkpoint_path_within_another_groups_is_told(other, words):
    """ray#35006: two runs in one tree. By segments: /data/run2 is beside /data/run."""
    world = World({"n1": 1})
    first = world.submit(checkpoint_path="/data/run")
    outcome = world.try_submit(document(checkpoint_path=other))
    assert outcome.ok
    told = [warning["message"] for warning in outcome.data["warnings"]]
    assert [words in message and first in message for message in told] == [True] * bool(words)
    assert world.group(outcome.data["group_id"])["warnings"] == outcome.data["warnings"]
    third = world.try_submit(document(checkpoint_path="/data/run/sub/deeper"))
    assert len(third.data["warnings"]) == 1


@pytest.mark.parametrize("other", ["/data/run", "/data/run/", "/data//run", "//data/run", "/data/x/../run"])
def test_a_checkpoint_path_belongs_to_one_active_group(other):
    world = World({"n1": 1})
    first = world.submit(checkpoint_path="/data/run")
    outcome = world.try_submit(document(checkpoint_path=other))
    assert outcome.code == "checkpoint_path_in_use"
    assert outcome.data == {"group_id": first}
    assert first in outcome.text
    world.run_up(first)
    world.finish(first)
    assert world.try_submit(document(checkpoint_path=other)).ok


def test_a_refused_group_does_not_take_the_path():
    world = World()
    first = world.submit(checkpoint_path="/data/run")
    world.try_submit(document(checkpoint_path="/data/other"), first)
    assert world.store.get("ckpt", "/data/other") is None


def test_stop_before_any_bind_is_immediate():
    world = World()
    group = world.submit()
    assert world.do("StopGroup", group_id=group, by="ada").data["status"] == "stopped"
    assert world.store.get("active", group) is None
    assert world.kinds(group) == ["submitted", "stopped"]


def test_stop_while_claiming_needs_no_process_to_end():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.control()
    world.report(world.tasks(group)[0], "claimed")
    world.do("StopGroup", group_id=group, by="ada")
    assert world.status(group) == "stopped"
    assert [hold["state"] for _, hold in world.store.scan("hold")] == ["releasing"] * 2
    world.clean(group)
    assert not list(world.store.scan("hold"))


def test_a_stop_wins_over_exit_codes_and_works_twice():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    assert world.do("StopGroup", group_id=group, by="ada").data["status"] == "stopping"
    again = world.do("StopGroup", group_id=group, by="ada")
    assert (again.ok, again.code) == (True, "already_asked")
    first, second = world.tasks(group)
    world.report(first, "exited", exit_code=3)
    world.report(second, "exited", exit_code=0)
    assert world.status(group) == "stopped"
    assert world.do("StopGroup", group_id=group, by="ada").ok
    assert world.transitions(group) == ["bound", "starting", "running", "stopping", "stopped"]


def test_a_stop_wins_over_a_failure_that_is_still_ending():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    world.report(world.tasks(group)[0], "exited", exit_code=1)
    world.do("StopGroup", group_id=group, by="ada")
    world.obey(group)
    assert world.status(group) == "stopped"
    assert world.group(group)["failure"]["rank"] == 0


def test_a_stop_ends_a_recovery():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    world.lose("n1")
    world.do("StopGroup", group_id=group, by="ada")
    world.obey(group)
    assert world.status(group) == "stopped"


@pytest.mark.parametrize("code", [0, 1])
def test_what_has_ended_by_itself_cannot_be_stopped(code):
    world = World({"n1": 1})
    group = world.submit()
    world.run_up(group)
    world.finish(group, code)
    outcome = world.do("StopGroup", group_id=group, by="ada")
    assert outcome.code == "group_ended"
    assert world.status(group) in outcome.text


def test_delete_waits_for_the_end_and_for_clean_cards():
    world = World({"n1": 1})
    group = world.submit()
    assert world.do("DeleteGroup", group_id=group).code == "group_active"
    world.run_up(group)
    world.report(world.tasks(group)[0], "exited")
    outcome = world.do("DeleteGroup", group_id=group)
    assert outcome.code == "still_releasing"
    assert "n1" in outcome.text
    world.clean(group)
    assert world.do("DeleteGroup", group_id=group).ok
    rest = {entity: rows for entity, rows in world.rows().items() if rows}
    assert set(rest) == {"node"}


def test_delete_does_not_wait_for_a_host_that_may_never_return():
    world = World({"n1": 1})
    group = world.submit()
    world.run_up(group)
    world.lose("n1")
    world.do("StopGroup", group_id=group, by="ada")
    assert world.status(group) == "stopped"
    assert world.do("DeleteGroup", group_id=group).ok
    assert not list(world.store.scan("hold"))
    assert world.rejoin("n1").ok


@pytest.mark.parametrize("name", ["StopGroup", "DeleteGroup"])
def test_unknown_groups_are_said_to_be(name):
    extra = {"by": "ada"} if name == "StopGroup" else {}
    assert World().do(name, group_id=GROUP, **extra).code == "no_such_group"
