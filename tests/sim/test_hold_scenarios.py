"""The mesh held for planned work: silence costs nothing while it lasts, and the usual bounds hold after it."""

import pytest

from tests.sim.hold_schedules import (
    held,
    is_dark,
    last_grant_before_the_end,
    leader_changes_in_the_hold,
    lease_left_s,
    released_early,
    silence_beyond_the_hold,
)
from tests.sim.stage import FOREVER, Stage

pytestmark = pytest.mark.sim


def test_a_silence_within_the_hold_costs_nothing():
    stage, group, node = held(60)
    stage.isolate(node.host.name)
    stage.pass_s(45)
    assert not is_dark(node) and stage.ready(node.host.name)()
    stage.network.heal()
    stage.pass_s(40)
    assert stage.is_(group, "running", 1)() and stage.watch.counts["starts"] == 2
    assert stage.watch.counts["expiries"] == 0 and stage.watch.counts["HoldLeft: ok"] > 10
    assert lease_left_s(node) <= 9, "after it leases are as usual"


def test_a_mesh_without_any_voter_for_most_of_the_hold_stops_nothing():
    stage, group, _ = held(60)
    for voter in stage.voters:
        voter.crash()
    stage.pass_s(40)
    for node in stage.nodes:
        node.start_voter()
    stage.pass_s(60)
    assert stage.is_(group, "running", 1)() and stage.watch.counts["fenced"] == 0


def test_a_silence_beyond_it_ends_as_any_other():
    timing = silence_beyond_the_hold(30)
    assert 29 <= timing["gone"] <= 31 + 9 + 5
    assert timing["gone"] < timing["running again"] <= 31 + 15 + 8


def test_every_leader_of_the_hold_knows_what_was_granted_before_it():
    timing = leader_changes_in_the_hold(60)
    assert 59 <= timing["gone"] <= 62 + 9 + 5
    # What a change of leader adds: its election, and how old the last count was.
    assert timing["gone"] < timing["running again"] <= 62 + 15 + 8 + 2 * 15


def test_no_lease_of_its_last_seconds_outlives_it():
    last_grant_before_the_end()


def test_clocks_apart_by_all_that_is_allowed():
    stage = Stage()
    group = stage.submit(1, 1, FOREVER)
    stage.running(group)
    (node,) = stage.ranks_of(group)
    stage.lead_away_from([node])
    for other in stage.nodes:
        rate = 0.99 if other is node else 1.01
        other.host.rate = other.guard.rate = other.agent.rate = rate
        if other.voter is not None:
            other.voter.rate = rate
    stage.client.order("HoldMesh", for_s=900, by="op", reason="")
    stage.pass_s(5)
    stage.isolate(node.host.name)
    stage.running(group, attempt=2, within_s=1000)


def test_released_early_by_a_leader_who_then_falls():
    released_early()


def test_released_early_no_lease_is_longer_any_more_and_those_that_are_run_out_first():
    stage, group, node = held(60)
    stage.isolate(node.host.name)
    stage.client.order("ReleaseHold", by="op")
    stage.pass_s(5)
    other = next(n for n in stage.nodes if n is not node)
    left = lease_left_s(other)
    stage.pass_s(20)
    assert lease_left_s(other) <= max(left - 19, 9.1), "what was granted longer stands, and nothing is added to it"
    assert not is_dark(node) and stage.ready(node.host.name)()
    stage.running(group, attempt=2, within_s=80)


def test_a_second_hold_makes_the_first_longer():
    stage, group, node = held(20)
    stage.client.order("HoldMesh", for_s=40, by="op", reason="it takes longer")
    stage.until(lambda: lease_left_s(node) > 40, 10, "the lease is longer")
    stage.isolate(node.host.name)
    stage.pass_s(38)
    assert not is_dark(node) and stage.ready(node.host.name)()
    stage.running(group, attempt=2, within_s=60)


def test_a_failure_beside_a_host_that_is_silent_in_the_hold_is_its_consequence():
    """Rank 0 loses its peer and exits 1 long before the loss is proved."""
    stage, group, node = held(30)
    stage.isolate(node.host.name)
    stage.pass_s(3)
    first = next(iter(stage.ranks_of(group)[0].host.tasks.values()))
    first.exits(1, None)
    stage.running(group, attempt=2, within_s=90)
    assert stage.group(group)["restarts"] == 1
