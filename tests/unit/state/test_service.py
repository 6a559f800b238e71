"""Nodes in and out of service: cordon, drain, moves, maintenance windows, and the pause of the scheduler."""

from typing import Any

import pytest

from mesh.core.control.decide import Now, decide
from tests.unit.state.world import World

ASKED = {"by": "ada", "reason": "new fans"}


def drain(world, node, mode="wait", deadline_s=60):
    return world.do("DrainNode", node_id=node, mode=mode, deadline_s=deadline_s, **ASKED)


def node(world, name):
    return world.store.get("node", name)


def gang():
    """A gang of two on n1 and n2, and n3 free."""
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    world.join("n3", 2)
    return world, group


class TestCordon:
    def test_nothing_new_is_bound_there_and_what_runs_goes_on(self):
        world, group = gang()
        assert world.do("CordonNode", node_id="n3", **ASKED).ok
        assert world.do("CordonNode", node_id="n1", **ASKED).ok
        other = world.submit(1, 2)
        world.control(5_000)
        assert world.status(group) == "running"
        reason = world.group(other)["pending_reason"]
        assert reason["details"]["refused"] == {"cordoned": 2, "busy": 1}, reason
        assert world.do("UncordonNode", node_id="n3", by="ada").ok
        world.control(5_000)
        assert world.group(other)["nodes"] == ["n3"]

    def test_a_plan_made_before_it_is_refused(self):
        world = World({"n1": 2})
        group = world.submit(1, 1)
        world.do("CordonNode", node_id="n1", **ASKED)
        placement = {"rank": 0, "node": "n1", "gpus": ["GPU-n1-0"], "port": 20_000}
        outcome = world.do("BindGroup", group_id=group, attempt=1, placements=[placement])
        assert (outcome.ok, outcome.code) == (False, "node_cordoned")

    @pytest.mark.parametrize("name", ["CordonNode", "UncordonNode", "DrainNode"])
    def test_an_unknown_node_is_refused_and_a_repeat_is_not(self, name):
        world = World({"n1": 1})
        asked: dict[str, dict[str, Any]] = {
            "CordonNode": ASKED,
            "UncordonNode": {"by": "ada"},
            "DrainNode": {"mode": "move", "deadline_s": 0, **ASKED},
        }
        fields = asked[name]
        assert world.do(name, node_id="n9", **fields).code == "no_such_node"
        assert world.do(name, node_id="n1", **fields).ok and world.do(name, node_id="n1", **fields).ok

    def test_it_stands_for_the_name_when_the_host_is_replaced(self):
        world = World({"n1": 1})
        drain(world, "n1")
        world.lose("n1")
        assert world.join("n1", 4, uid="uid-new").ok
        assert node(world, "n1")["cordon"]["by"] == "ada" and node(world, "n1")["drain"] is not None


class TestDrain:
    def test_groups_may_finish_until_the_deadline(self):
        world, group = gang()
        assert drain(world, "n2").data["groups"] == 1
        assert "node_draining" in world.kinds(group)
        world.control(50_000)
        assert world.status(group) == "running" and node(world, "n2")["drain"]["done_ms"] is None
        world.finish(group)
        world.control(1_000)
        row = node(world, "n2")["drain"]
        assert world.status(group) == "completed" and row["done_ms"] is not None and row["moved"] == 0

    def test_at_the_deadline_the_gang_leaves_and_goes_on_elsewhere(self):
        world, group = gang()
        drain(world, "n2")
        world.control(61_000)
        row = world.group(group)
        assert (row["status"], row["ending"]) == ("recovering", "drained")
        world.obey(group)
        row = world.group(group)
        assert (row["status"], row["ending"], row["restarts"], row["drains"]) == ("pending", None, 0, 1)
        world.clean(group)
        world.control(5_000)
        assert world.group(group)["nodes"] == ["n1", "n3"] and world.group(group)["attempt"] == 2
        assert node(world, "n2")["penalty"]["score"] == 0
        world.control(1_000)
        row = node(world, "n2")["drain"]
        assert row["done_ms"] is not None and row["moved"] == 1

    def test_a_move_does_not_wait_and_a_gang_on_two_such_nodes_moves_once(self):
        world, group = gang()
        world.join("n4", 2)
        drain(world, "n1", mode="move")
        drain(world, "n2", mode="move")
        moves = [proposal for proposal in world.control() if proposal["t"] == "MoveGroup"]
        assert len(moves) == 1
        world.obey(group)
        world.clean(group)
        world.control(5_000)
        assert world.group(group)["nodes"] == ["n3", "n4"]
        world.control()
        assert all(node(world, name)["drain"]["done_ms"] for name in ("n1", "n2"))

    def test_a_new_leader_goes_on_with_it(self):
        world, group = gang()
        drain(world, "n2")
        world.control(1_000)
        world.new_leader()
        world.control(30_000)
        assert world.status(group) == "running"
        world.new_leader()
        world.control(30_000)
        assert world.status(group) == "recovering"
        world.new_leader()
        world.obey(group)
        world.clean(group)
        world.control(1_000)
        assert node(world, "n2")["drain"]["done_ms"] is not None

    def test_what_has_not_started_leaves_at_once(self):
        world = World({"n1": 2})
        group = world.submit(1, 2)
        world.control()
        assert world.status(group) == "scheduling"
        drain(world, "n1", deadline_s=600)
        world.control()
        assert world.status(group) == "pending" and world.group(group)["rollbacks"] == 1

    def test_it_is_called_off_by_uncordon(self):
        world, group = gang()
        drain(world, "n2")
        world.do("UncordonNode", node_id="n2", by="bob")
        world.control(100_000)
        assert world.status(group) == "running" and world.kinds(group)[-1] == "node_undrained"
        move = world.do("MoveGroup", group_id=group, attempt=1, node_id="n2")
        assert move.code == "not_draining"

    def test_a_user_who_stops_it_meanwhile_wins(self):
        world, group = gang()
        drain(world, "n2", mode="move")
        world.control()
        world.do("StopGroup", group_id=group, by="u")
        world.obey(group)
        assert world.status(group) == "stopped"

    def test_a_rank_that_fails_as_it_is_told_to_leave_is_no_failure(self):
        world, group = gang()
        drain(world, "n2", mode="move")
        world.control()
        first, second = world.tasks(group)
        world.report(first, "exited", exit_code=1)
        world.report(second, "exited", exit_code=None, signal=9, why="stopped")
        assert world.status(group) == "pending" and world.group(group)["failure"] is None

    def test_a_host_lost_on_the_way_out_costs_the_group_nothing(self):
        world, group = gang()
        drain(world, "n2", mode="move")
        world.control()
        world.lose("n2")
        world.report(world.tasks(group)[0], "exited", exit_code=0)
        assert world.status(group) == "pending" and world.group(group)["restarts"] == 0

    def test_a_set_back_clock_delays_no_deadline(self):
        world, _ = gang()
        drain(world, "n2")
        stamp = world.now_ms
        world.control(1_000)
        world.now_ms = stamp  # the leaders' stamps stand still while its wall clock is behind them
        mono = stamp + 61_000
        later = decide(world.view, Now(mono, stamp - 86_400_000), world.memory)
        assert [proposal["t"] for proposal in later] == ["MoveGroup"]


class TestMaintenance:
    def plan(self, world, **over):
        fields = {"from_ms": None, "in_s": 60, "for_s": 120, "mode": "move", "deadline_s": 0, **ASKED, **over}
        return world.do("PlanMaintenance", node_id="n2", **fields)

    def test_it_empties_the_node_at_its_time_and_gives_it_back_at_its_end(self):
        world, group = gang()
        assert self.plan(world).ok
        world.control(30_000)
        assert world.status(group) == "running" and node(world, "n2").get("cordon") is None
        world.control(31_000)
        world.control()
        assert world.status(group) == "recovering" and node(world, "n2")["window"]["open"]
        world.obey(group)
        world.clean(group)
        world.control(1_000)
        assert "n2" not in world.group(group)["nodes"]
        world.new_leader()
        world.control(121_000)
        row = node(world, "n2")
        assert (row["cordon"], row["drain"], row["window"]) == (None, None, None)

    def test_one_that_no_leader_was_there_for_moves_nobody(self):
        world, group = gang()
        self.plan(world)
        world.control(200_000)
        world.control()
        assert world.status(group) == "running" and node(world, "n2")["window"] is None

    def test_who_cordoned_it_before_keeps_the_cordon(self):
        world = World({"n2": 1})
        world.do("CordonNode", node_id="n2", by="bob", reason="broken")
        self.plan(world, in_s=0)
        world.control()
        world.control(121_000)
        assert node(world, "n2")["cordon"]["by"] == "bob" and node(world, "n2")["window"] is None

    def test_a_window_that_is_over_is_refused_and_one_under_way_is_not_replaced(self):
        world = World({"n2": 1})
        assert self.plan(world, from_ms=1).code == "maintenance_past"
        assert self.plan(world, in_s=0).ok
        world.control()
        assert self.plan(world).code == "maintenance_open"

    @pytest.mark.parametrize("opened", [False, True])
    def test_it_can_be_cancelled(self, opened):
        world = World({"n2": 1})
        self.plan(world, in_s=0)
        if opened:
            world.control()
        assert world.do("CancelMaintenance", node_id="n2", by="ada").ok
        row = node(world, "n2")
        assert row.get("window") is None and row.get("cordon") is None

    def test_uncordon_ends_the_one_under_way_and_leaves_the_one_ahead(self):
        world = World({"n2": 1})
        self.plan(world)
        world.do("CordonNode", node_id="n2", **ASKED)
        world.do("UncordonNode", node_id="n2", by="ada")
        assert node(world, "n2")["window"] is not None
        world.control(61_000)
        world.do("UncordonNode", node_id="n2", by="ada")
        assert node(world, "n2")["window"] is None


class TestPause:
    def test_nothing_new_is_bound_and_everyone_is_told_why(self):
        world, running = gang()
        world.do("PauseScheduling", **ASKED)
        waiting = world.submit(1, 1)
        world.control(5_000)
        reason = world.group(waiting)["pending_reason"]
        assert (
            reason["code"] == "scheduling_paused" and "by ada since" in reason["text"] and "new fans" in reason["text"]
        )
        assert world.status(running) == "running"
        placement = {"rank": 0, "node": "n3", "gpus": ["GPU-n3-0"], "port": 20_000}
        bind = world.do("BindGroup", group_id=waiting, attempt=1, placements=[placement])
        assert bind.code == "scheduling_paused"
        assert world.do("PauseScheduling", by="bob", reason="").code == "already_paused"
        world.do("ResumeScheduling", by="bob")
        world.control(5_000)
        assert world.status(waiting) == "scheduling"

    def test_a_gang_that_was_bound_before_starts(self):
        world = World({"n1": 1})
        group = world.submit(1, 1)
        world.control()
        world.do("PauseScheduling", **ASKED)
        world.obey(group)
        world.control()
        world.obey(group)
        assert world.status(group) == "running"
