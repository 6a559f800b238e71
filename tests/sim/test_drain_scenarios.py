"""Nodes taken out of service while leaders fall and hosts are lost: what was ordered is done once, whoever leads."""

import pytest

from tests.sim.loop import S
from tests.sim.stage import DEAF, FOREVER, Stage, runs
from tests.sim.task import Program

pytestmark = pytest.mark.sim


def drain(stage: Stage, node: str, deadline_s: int, mode: str = "wait") -> None:
    stage.client.order("DrainNode", node_id=node, mode=mode, deadline_s=deadline_s, by="op", reason="fans")
    stage.until(lambda: stage.watch.nodes[node].get("drain") is not None, 10, "the drain is ordered")


def empty(stage: Stage, node: str) -> bool:
    row = stage.watch.nodes[node]["drain"]
    return row is not None and row["done_ms"] is not None


def test_the_next_leader_moves_what_the_one_before_let_run():
    stage = Stage()
    group = stage.submit(2, 1, FOREVER)
    stage.running(group)
    node = stage.ranks_of(group)[1].host.name
    began = stage.now_s()
    drain(stage, node, deadline_s=30)
    stage.kill_leader()
    assert stage.is_(group, "running", 1)(), "it may run until the deadline"
    stage.running(group, attempt=2, within_s=60)
    assert 29 <= stage.now_s() - began <= 45
    assert node not in stage.group(group)["nodes"] and stage.group(group)["restarts"] == 0
    stage.until(lambda: empty(stage, node), 20, "the node is empty")


def test_a_leader_that_falls_while_the_ranks_end_costs_no_move_and_doubles_none():
    stage = Stage()
    slow = Program(runs_ns=10_000 * S, exit_code=0, on_term_ns=4 * S, grace_ns=10 * S)
    group = stage.submit(2, 1, slow)
    stage.running(group)
    node = stage.ranks_of(group)[1].host.name
    drain(stage, node, 0, mode="move")
    stage.until(stage.is_(group, "recovering"), 10, "it leaves")
    stage.kill_leader()
    stage.running(group, attempt=2, within_s=40)
    assert stage.watch.counts["MoveGroup: ok"] == 1 and stage.group(group)["drains"] == 1


def test_a_host_lost_while_it_is_drained_comes_back_empty_and_still_cordoned():
    stage = Stage()
    group = stage.submit(2, 1, DEAF)
    stage.running(group)
    node = stage.ranks_of(group)[1]
    stage.lead_away_from([node])
    drain(stage, node.host.name, deadline_s=600)
    node.power_off()
    stage.running(group, attempt=2, within_s=60)
    assert stage.group(group)["restarts"] == 1, "that was a loss, no move"
    node.power_on()
    stage.until(lambda: empty(stage, node.host.name), 60, "it is back and empty")
    other = stage.submit(1, 2, runs(5))
    stage.until(stage.is_(other, "completed"), 60, "others take groups")
    assert node.host.name not in stage.group(other)["nodes"]


def test_what_finishes_in_time_is_not_moved():
    stage = Stage()
    group = stage.submit(2, 1, runs(15))
    stage.running(group)
    node = stage.ranks_of(group)[1].host.name
    drain(stage, node, deadline_s=60)
    stage.until(stage.is_(group, "completed"), 30, "it completes")
    stage.until(lambda: empty(stage, node), 20, "the node is empty")
    assert stage.watch.counts["MoveGroup: ok"] == 0


def test_a_gang_that_fits_nowhere_else_waits_and_runs_again_when_the_drain_is_called_off():
    stage = Stage(hosts=3, cards=1)
    group = stage.submit(3, 1, FOREVER)
    stage.running(group)
    drain(stage, "n2", 0, mode="move")
    stage.until(lambda: stage.is_(group, "pending")() and empty(stage, "n2"), 30, "it waits")
    stage.until(lambda: (stage.group(group)["pending_reason"] or {}).get("code") == "cordoned", 10, "it says why")
    stage.client.order("UncordonNode", node_id="n2", by="op")
    stage.running(group, attempt=2, within_s=20)


def test_a_window_opens_and_closes_whoever_leads_and_whatever_the_clocks_say():
    stage = Stage()
    group = stage.submit(2, 1, FOREVER)
    stage.running(group)
    node = stage.ranks_of(group)[1].host.name
    how = {"mode": "move", "deadline_s": 0, "by": "op", "reason": "bios"}
    stage.client.order("PlanMaintenance", node_id=node, from_ms=None, in_s=20, for_s=60, **how)
    stage.until(lambda: stage.watch.nodes[node].get("window") is not None, 10, "it is planned")
    planned = stage.now_s()
    stage.kill_leader()
    for other in stage.nodes:
        other.host.wall_offset_ms -= 86_400_000
    stage.running(group, attempt=2, within_s=60)
    assert 19 <= stage.now_s() - planned <= 45
    stage.kill_leader()
    stage.until(lambda: stage.watch.nodes[node]["cordon"] is None, 120, "it is given back")
    assert stage.now_s() - planned >= 79
    assert stage.is_(group, "running", 2)()


def test_a_paused_mesh_binds_nothing_not_even_what_it_recovers():
    stage = Stage()
    group = stage.submit(1, 1, FOREVER)
    stage.running(group)
    stage.client.order("PauseScheduling", by="op", reason="storage")
    node = stage.ranks_of(group)[0]
    stage.lead_away_from([node])
    node.power_off()
    stage.until(stage.is_(group, "pending"), 40, "it waits")
    stage.kill_leader()
    stage.pass_s(20)
    assert stage.is_(group, "pending")()
    assert stage.group(group)["pending_reason"]["code"] == "scheduling_paused"
    stage.client.order("ResumeScheduling", by="op")
    stage.running(group, attempt=2, within_s=30)
