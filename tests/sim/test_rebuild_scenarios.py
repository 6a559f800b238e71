"""Services that end, lose their host, and are stopped, while leaders fall: built again once each time."""

import pytest

from tests.sim.stage import FOREVER, Stage, runs

pytestmark = pytest.mark.sim


def test_what_ends_is_built_again_each_time_with_a_longer_wait():
    stage = Stage()
    group = stage.submit(1, 1, runs(3), endless=True)
    began = stage.now_s()
    stage.running(group, attempt=5, within_s=90)
    assert stage.now_s() - began >= 4 * 3 + 1 + 2 + 4 + 8, "four runs of 3 s, and the waits between them"
    assert stage.group(group)["rebuild"]["total"] == 4 and stage.watch.counts["rebuilds"] == 4


def test_a_leader_that_falls_in_the_wait_neither_forgets_nor_doubles_it():
    stage = Stage()
    group = stage.submit(2, 1, runs(4), endless=True)
    stage.running(group)
    stage.until(stage.is_(group, "pending"), 30, "it ended and waits")
    stage.kill_leader()
    stage.running(group, attempt=2, within_s=60)
    assert stage.group(group)["rebuild"]["total"] == 1


def test_a_lost_host_is_no_end_and_waits_for_its_lease_alone():
    stage = Stage()
    group = stage.submit(1, 2, FOREVER, endless=True)
    stage.running(group)
    node = stage.ranks_of(group)[0]
    stage.lead_away_from([node])
    node.power_off()
    stage.running(group, attempt=2, within_s=60)
    row = stage.group(group)
    assert row["restarts"] == 1 and "rebuild" not in row and row["nodes"] != [node.host.name]


def test_a_stop_ends_what_would_be_built_again_for_ever():
    stage = Stage()
    group = stage.submit(1, 1, runs(2), endless=True)
    stage.until(lambda: stage.watch.counts["rebuilds"] >= 2, 60, "it is built again")
    stage.client.stop_group(group)
    stage.until(stage.is_(group, "stopped"), 30, "it is stopped")
    attempts = stage.group(group)["attempt"]
    stage.pass_s(60)
    assert stage.is_(group, "stopped", attempts)()


def test_a_drain_moves_it_at_once_and_its_port_goes_with_it():
    stage = Stage(hosts=2, voters=1)
    group = stage.submit(1, 1, FOREVER, endless=True)
    stage.running(group)
    (node,) = stage.group(group)["nodes"]
    began = stage.now_s()
    stage.client.order("DrainNode", node_id=node, mode="wait", deadline_s=3_600, by="op", reason="fans")
    stage.running(group, attempt=2, within_s=30)
    assert stage.now_s() - began < 30 and stage.group(group)["nodes"] != [node]


def test_two_services_of_one_port_never_share_a_node():
    """Each has a node; the third waits until one is stopped."""
    stage = Stage(hosts=2, voters=1)
    groups = [stage.submit(1, 0, FOREVER, endless=True) for _ in range(3)]
    for group in groups[:2]:
        stage.running(group)
    stage.until(lambda: stage.group(groups[2])["pending_reason"] is not None, 10, "the third is told why it waits")
    assert stage.group(groups[2])["pending_reason"]["code"] == "held_by_inference"
    stage.client.stop_group(groups[0])
    stage.running(groups[2], within_s=30)
    assert stage.group(groups[2])["nodes"] != stage.group(groups[1])["nodes"]
