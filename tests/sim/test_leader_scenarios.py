"""Schedules around leadership: who leads, who must not, and what a change of leaders may not disturb."""

import pytest

from tests.sim.loop import S
from tests.sim.mesh_world import document
from tests.sim.stage import FOREVER, Stage

pytestmark = pytest.mark.sim


def test_a_flaky_voter_disturbs_nobody():
    stage = Stage(hosts=3)
    leader = stage.the_leader()
    term = leader.node.term
    flaky = next(v for v in stage.voters if v is not leader)
    for _ in range(10):
        stage.isolate(flaky.host)
        stage.pass_s(20)
        stage.network.heal()
        stage.pass_s(5)
        group = stage.submit(1, 0, FOREVER)
        stage.running(group)
    assert stage.leader() is leader and leader.node.term == term


def test_a_leader_with_a_rebooting_follower_stays_leader():
    stage = Stage(hosts=3)
    leader = stage.the_leader()
    term = leader.node.term
    follower = next(v for v in stage.voters if v is not leader)
    stage.node(follower.host).power_off()
    for _ in range(20):
        began = stage.loop.now
        stage.submit(1, 0, FOREVER, through=leader.host)
        assert stage.loop.now - began < leader.timers.election_ns
    stage.node(follower.host).power_on()
    stage.pass_s(20)
    assert stage.leader() is leader and leader.node.term == term
    assert follower.applied == len(stage.raft_watch.chosen)


def test_a_leader_whose_agent_is_stopped_hands_the_lead_over():
    stage = Stage(hosts=3)
    leader = stage.the_leader()
    agent = stage.node(leader.host).agent
    agent.stop()
    stage.until(lambda: stage.watch.counts["beat step-downs"] == 1, 10, "the leader gives up the lead")
    gave_up = stage.loop.now
    stage.until(lambda: stage.leader() not in (None, leader), 10, "another voter leads")
    assert stage.loop.now - gave_up < leader.timers.election_ns / 4, "it was told to stand; it did not have to time out"
    group = stage.submit(1, 1, FOREVER)
    stage.running(group)
    agent.cont()


@pytest.mark.attack(46)
def test_a_leader_of_old_does_not_act_on_what_it_remembers():
    """It led and started A; another stopped A and started B; it leads again without a restart. B goes on, untouched."""
    stage = Stage(hosts=3, cards=1)
    first = stage.the_leader()
    a = stage.submit(2, 1, FOREVER)
    stage.running(a)
    first.stop()
    stage.until(lambda: stage.leader() not in (None, first), 20, "another leads")
    stage.client.stop_group(a)
    stage.until(stage.is_(a, "stopped"), 30, "A is stopped")
    b = stage.submit(2, 1, FOREVER)
    stage.running(b)
    first.cont()
    while (leader := stage.the_leader()) is not first:
        leader.stop()
        stage.until(lambda: stage.leader() is not None, 30, "somebody leads")
        leader.cont()
        stage.pass_s(4)
    stage.pass_s(30)
    assert stage.is_(b, "running", 1)() and stage.is_(a, "stopped")()
    assert stage.watch.counts["starts"] == 4


@pytest.mark.attack(46)
def test_nothing_is_answered_while_a_majority_is_away():
    stage = Stage(hosts=3)
    leader = stage.the_leader()
    for voter in stage.voters:
        if voter is not leader:
            stage.node(voter.host).power_off()
    before = stage.watch.counts["answers"]
    stage.client.submit(document("lonely", 1, 0), FOREVER)
    stage.pass_s(20)
    assert stage.watch.counts["answers"] == before
    for voter in stage.voters:
        stage.node(voter.host).power_on()
    stage.until(lambda: stage.watch.counts["answers"] == before + 1, 30, "it is answered once a majority is back")
    assert stage.loop.now > 20 * S
