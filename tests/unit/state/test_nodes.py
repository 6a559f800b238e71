"""Registration, loss and return of hosts."""

import pytest

from tests.property.state_invariants import violations
from tests.unit.state.world import World, cards


def test_a_repeated_registration_writes_nothing():
    world = World({"n1": 2})
    assert world.join("n1", 2).ok
    assert world.store.take_changes() == []


def test_registration_follows_the_hosts_facts():
    world = World({"n1": 2})
    world.join("n1", 4)
    assert len(world.store.get("node", "n1")["gpus"]) == 4


def test_a_card_listed_twice_is_refused():
    world = World()
    assert world.join("n1", 2, gpus=cards("n1", 1) * 2).code == "duplicate_gpu"
    assert world.store.get("node", "n1") is None


def test_a_name_in_use_is_not_given_to_another_host():
    world = World({"n1": 2})
    outcome = world.join("n1", 2, uid="another")
    assert outcome.code == "node_name_taken"
    assert "n1.example" in outcome.text
    assert world.store.get("node", "n1")["uid"] == "uid-n1"


def test_a_new_host_may_take_the_name_of_a_lost_one_and_its_unclean_cards_go_with_it():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    world.lose("n1")
    assert [hold["state"] for _, hold in world.store.scan("hold", "n1/")] == ["releasing"]
    outcome = world.join("n1", 2, uid="another")
    assert outcome.ok
    assert outcome.data["state"] == "ready"
    assert not list(world.store.scan("hold", "n1/"))
    assert world.tasks(group, 1)[0]["released"]


def test_the_name_of_a_lost_host_with_kept_ranks_is_not_given_away():
    world = World({"n1": 2})
    group = world.submit(1, 2, on_isolation="keep")
    world.run_up(group)
    world.lose("n1")
    assert world.join("n1", 2, uid="another").code == "node_name_taken"
    assert world.status(group) == "running"
    world.do("StopGroup", group_id=group, by="ada")
    assert world.join("n1", 2, uid="another").code == "node_name_taken"
    assert world.rejoin("n1", world.tasks(group)).ok
    world.obey(group)
    assert world.status(group) == "stopped"


def test_registration_does_not_bring_a_lost_host_back():
    world = World({"n1": 2})
    world.lose("n1")
    assert world.join("n1", 2).data["state"] == "lost"
    assert world.rejoin("n1").data["state"] == "ready"
    assert world.store.get("node", "n1")["losses"] == 1


@pytest.mark.parametrize("name", ["ExpireNode", "RejoinNode"])
def test_only_the_host_that_is_meant(name):
    world = World({"n1": 2})
    extra = {"text": "silent"} if name == "ExpireNode" else {"losses": 1, "tasks": []}
    assert world.do(name, node_id="n1", uid="another", **extra).code == "wrong_node_uid"
    assert world.do(name, node_id="n9", uid="u", **extra).code == "no_such_node"
    assert world.store.get("node", "n1")["state"] == "ready"


def test_a_late_copy_of_a_rejoin_does_not_speak_for_a_later_loss():
    world = World({"n1": 2})
    for _ in range(2):
        world.lose("n1")
        assert world.rejoin("n1").ok
    world.lose("n1")
    late = world.do("RejoinNode", node_id="n1", uid="uid-n1", losses=1, tasks=[])
    assert (late.ok, late.code) == (False, "stale_rejoin")
    assert world.store.get("node", "n1")["state"] == "lost"
    assert world.rejoin("n1").data["state"] == "ready"


def test_a_loss_counts_once():
    world = World({"n1": 2})
    assert world.lose("n1").ok
    again = world.lose("n1")
    assert (again.ok, again.code) == (True, "already_lost")
    assert world.store.get("node", "n1")["losses"] == 1


def test_losing_a_host_requeues_its_group_as_a_whole():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    assert world.lose("n1").data["groups"] == [group]
    assert world.status(group) == "recovering"
    assert [(task["status"], task["order"]) for task in world.tasks(group)] == [("lost", "stop"), ("running", "stop")]
    world.obey(group)
    assert world.status(group) == "pending"
    assert world.group(group)["restarts"] == 1


def test_losing_a_host_before_the_start_is_a_rollback():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.control()
    world.lose("n2")
    assert world.status(group) == "pending"
    assert [task["status"] for task in world.tasks(group)] == ["cancelled", "lost"]
    assert (world.group(group)["rollbacks"], world.group(group)["restarts"]) == (1, 0)
    assert world.transitions(group) == ["bound", "rolled_back"]


def test_losing_the_host_of_a_rank_that_had_exited_changes_nothing():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    world.report(world.tasks(group)[0], "exited")
    world.lose("n1")
    assert world.status(group) == "running"
    world.report(world.tasks(group)[1], "exited")
    assert world.status(group) == "completed"


def test_a_stop_already_asked_for_wins_over_the_loss():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    world.do("StopGroup", group_id=group, by="ada")
    world.lose("n1")
    assert world.status(group) == "stopping"
    world.obey(group)
    assert world.status(group) == "stopped"


def test_a_kept_rank_survives_isolation_and_return():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2, on_isolation="keep")
    world.run_up(group)
    world.lose("n1")
    assert world.status(group) == "running"
    rank = world.tasks(group)[0]
    assert world.rejoin("n1", [rank]).ok
    assert world.status(group) == "running"
    assert world.kinds(group)[-2:] == ["node_isolated", "node_returned"]
    assert [hold["state"] for _, hold in world.store.scan("hold", "n1/")] == ["held"]


def test_a_kept_rank_that_did_not_survive_is_recovered_from():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2, on_isolation="keep")
    world.run_up(group)
    world.lose("n1")
    world.rejoin("n1")
    assert world.status(group) == "recovering"
    assert not list(world.store.scan("hold", "n1/"))
    world.obey(group)
    assert world.status(group) == "pending"


@pytest.mark.parametrize("asked", [None, "StopGroup", "PauseGroup"])
def test_a_kept_rank_whose_host_is_off_for_good_is_lost_at_an_operators_word(asked):
    world = World({"n1": 2, "n2": 2, "n3": 2})
    group = world.submit(2, 2, on_isolation="keep")
    world.run_up(group)
    world.lose("n1")
    if asked is not None:
        world.do(asked, group_id=group, by="ada")
        world.report(world.tasks(group)[1], "exited", exit_code=0, why="stopped")
    assert world.status(group) == {None: "running", "StopGroup": "stopping", "PauseGroup": "pausing"}[asked]
    given = world.do("GiveUpNode", node_id="n1", by="op", reason="board burnt")
    assert given.data["groups"] == 1 and "op said that node n1 is gone for good" in world.tasks(group)[0]["reason"]
    assert world.status(group) == {None: "recovering", "StopGroup": "stopped", "PauseGroup": "paused"}[asked]
    if asked is None:
        world.obey(group)
        world.clean(group)
        world.run_up(group)
        assert world.group(group)["nodes"] == ["n2", "n3"]
    assert world.do("GiveUpNode", node_id="n1", by="op", reason="").data["groups"] == 0
    assert violations(world.store) == []


@pytest.mark.parametrize(("node", "code"), [("n1", "node_not_lost"), ("n9", "no_such_node")])
def test_nobody_gives_up_a_host_that_is_heard(node, code):
    world = World({"n1": 2})
    group = world.submit(1, 2, on_isolation="keep")
    world.run_up(group)
    assert world.do("GiveUpNode", node_id=node, by="op", reason="").code == code
    assert world.status(group) == "running"


def test_a_given_up_host_comes_back_only_without_its_rank_and_its_name_is_free():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2, on_isolation="keep")
    world.run_up(group)
    rank = world.tasks(group)[0]
    world.lose("n1")
    assert world.join("n1", 2, uid="another").code == "node_name_taken"
    world.do("GiveUpNode", node_id="n1", by="op", reason="")
    assert world.rejoin("n1", [rank]).code == "stale_tasks"
    assert world.join("n1", 2, uid="another").ok
    assert violations(world.store) == []


def test_a_host_may_not_return_with_a_rank_the_mesh_gave_up():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    rank = world.tasks(group)[0]
    world.lose("n1")
    outcome = world.rejoin("n1", [rank])
    assert outcome.code == "stale_tasks"
    assert outcome.data["tasks"] == [[group, 1, 0]]
    assert world.store.get("node", "n1")["state"] == "lost"
    assert world.rejoin("n1").ok
    assert not list(world.store.scan("hold", "n1/"))


def test_a_ready_host_that_says_it_is_back_loses_nothing():
    world = World({"n1": 2})
    group = world.submit(1, 2)
    world.control()
    outcome = world.rejoin("n1")
    assert (outcome.ok, outcome.code) == (True, "already_ready")
    assert world.status(group) == "scheduling"


@pytest.mark.parametrize(
    ("silent_s", "ends_as"),
    [(0, "recovering"), (14, "recovering"), (17, "recovering"), (30, "failed")],
)
def test_a_failure_while_a_host_was_silent_is_a_consequence_of_its_loss(silent_s: int, ends_as: str):
    # The other host's rank loses its peer and exits 1 at once; that its host is dead is only proved a lease later.
    world = World({"n1": 2, "n2": 2, "n3": 2})
    world.do("InitCluster", cluster_id="c1", epoch=1, profile="fast", voters=[])
    group = world.submit(2, 2)
    world.run_up(group)
    first, second = world.tasks(group)
    world.report(first, "exited", exit_code=1)
    assert world.group(group)["failure"]["rank"] == 0
    world.now_ms += silent_s * 1000
    world.lose(second["node"])
    if ends_as == "failed":
        assert world.status(group) == "failed"
        return
    assert "recovering" in world.transitions(group)
    assert world.status(group) == "pending"
    assert world.group(group)["failure"] is None
    assert world.group(group)["restarts"] == 1
    world.clean(group, 1)
    world.run_up(group)
    assert world.group(group)["attempt"] == 2


def test_an_engine_that_goes_and_comes_is_written_once_each_and_touches_nothing_that_runs():
    world = World()
    world.join("d1", 2, runtime="docker")
    group = world.submit(image="team/pt:1")
    world.run_up(group)
    world.store.take_changes()
    for _ in range(2):
        world.join("d1", 2, runtime="docker", engine_down="it is silent")
    assert world.store.get("node", "d1")["engine_down"] == "it is silent"
    waiting = world.submit(image="team/pt:1")
    world.control()
    assert world.group(waiting)["pending_reason"]["code"] == "engine_down"
    assert world.status(group) == "running"
    world.join("d1", 2, runtime="docker")
    world.control()
    assert world.status(waiting) == "scheduling"
    assert world.status(group) == "running"


def test_a_registration_of_an_older_agent_says_nothing_of_an_engine():
    world = World({"n1": 1})
    assert world.store.get("node", "n1")["engine_down"] is None
