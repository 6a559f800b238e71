"""Pauses, limits of time and restarts while leaders fall, hosts are lost and clocks are wrong."""

import pytest

from tests.sim.loop import S
from tests.sim.stage import FOREVER, Stage
from tests.sim.task import Program

pytestmark = pytest.mark.sim
SLOW = Program(runs_ns=10_000 * S, exit_code=0, on_term_ns=4 * S, grace_ns=10 * S)


def set_clocks_back(stage: Stage) -> None:
    for node in stage.nodes:
        node.host.wall_offset_ms -= 86_400_000


def test_a_pause_goes_on_under_the_next_leader_and_lasts_until_it_is_resumed():
    stage = Stage()
    group = stage.submit(2, 1, SLOW)
    stage.running(group)
    stage.client.order("PauseGroup", group_id=group, by="u")
    stage.until(stage.is_(group, "pausing"), 10, "it pauses")
    stage.kill_leader()
    stage.until(stage.is_(group, "paused"), 30, "every rank has saved")
    stage.pass_s(60)
    stage.kill_leader()
    assert stage.is_(group, "paused", 1)()
    stage.client.order("ResumeGroup", group_id=group, by="u")
    stage.running(group, attempt=2, within_s=30)
    assert stage.group(group)["restarts"] == 0


def test_a_host_that_is_lost_while_it_saves_ends_the_pause_once_it_is_given_up():
    stage = Stage()
    group = stage.submit(2, 1, SLOW)
    stage.running(group)
    node = stage.ranks_of(group)[1]
    stage.lead_away_from([node])
    stage.client.order("PauseGroup", group_id=group, by="u")
    stage.until(stage.is_(group, "pausing"), 10, "it pauses")
    node.power_off()
    stage.pass_s(8)
    assert stage.is_(group, "pausing")(), "nobody knows yet that its rank is gone"
    stage.until(stage.is_(group, "paused"), 40, "the host is given up")
    stage.client.order("ResumeGroup", group_id=group, by="u")
    stage.running(group, attempt=2, within_s=30)
    assert node.host.name not in stage.group(group)["nodes"]


def test_a_deadline_is_kept_by_the_next_leader_whatever_its_clock_says():
    stage = Stage()
    group = stage.submit(2, 1, SLOW, deadline_s=40)
    stage.running(group)
    began = stage.now_s()
    stage.kill_leader()
    set_clocks_back(stage)
    stage.kill_leader()
    stage.until(stage.is_(group, "failed"), 90, "its deadline ends it")
    assert 39 <= stage.now_s() - began <= 70
    assert stage.group(group)["failure"]["class"] == "walltime"
    assert stage.watch.counts["FailGroup: ok"] == 1


def test_a_wait_has_an_end_also_across_leaders():
    stage = Stage()
    group = stage.submit(4, 2, FOREVER)
    stage.running(group)
    waits = stage.submit(1, 1, FOREVER, max_wait_s=40)
    began = stage.now_s()
    stage.kill_leader()
    stage.until(stage.is_(waits, "failed"), 90, "it has waited long enough")
    assert 38 <= stage.now_s() - began <= 70
    assert stage.group(waits)["failure"]["class"] == "unschedulable"
    assert stage.is_(group, "running")()


def test_restarts_are_spent_by_lost_hosts():
    stage = Stage(hosts=5)
    group = stage.submit(2, 1, FOREVER, recovery={"max_restarts": 1, "on": []})
    stage.running(group)
    for attempt, status in ((1, "running"), (2, "failed")):
        node = stage.ranks_of(group)[1]
        stage.lead_away_from([node])
        assert stage.is_(group, "running", attempt)()
        node.power_off()
        stage.until(stage.is_(group, status, 2), 60, f"it is {status}")
        node.power_on()
        stage.until(stage.ready(node.host.name), 40, "the host is back")
    assert stage.group(group)["failure"]["class"] == "node_lost"
