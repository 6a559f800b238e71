"""Schedules in which a host falls silent: fenced before anyone re-queues, adopted where it comes back in time."""

import pytest

from agentd.core.deadline import TERM_TO_KILL_NS
from schemas.limits import PROFILES
from schemas.states import LOST
from tests.sim.lease_schedules import isolated_host, late_grant, stale_rejoin
from tests.sim.loop import S
from tests.sim.stage import DEAF, FOREVER, Stage, runs

pytestmark = pytest.mark.sim

FAST = PROFILES["fast"]
T_STOP_S, T_LEASE_S = FAST.t_stop_ms / 1000, FAST.t_lease_ms / 1000


@pytest.mark.attack(46)
def test_an_isolated_host_is_fenced_then_given_up_then_its_gang_runs_elsewhere():
    stage, timing = isolated_host()
    assert T_STOP_S - 1.5 <= timing["first rank gone"] <= T_STOP_S + TERM_TO_KILL_NS / S + 0.5
    assert timing["running again"] <= T_LEASE_S + 5
    stage.network.heal()
    stage.until(stage.ready(timing.host), 20, "the host comes back")
    stage.until(
        lambda: not any(hold.startswith(timing.host + "/") for hold in stage.watch.holds), 20, "its cards are free"
    )


@pytest.mark.attack(46)
def test_a_grant_that_is_read_late_does_not_stretch_the_lease():
    late_grant()


def test_a_request_to_rejoin_speaks_for_its_own_loss_only():
    stage = stale_rejoin()
    assert stage.watch.counts["RejoinNode: stale_rejoin"] == 1


def test_a_short_silence_costs_nothing():
    stage = Stage()
    group = stage.submit(2, 1, FOREVER)
    stage.running(group)
    stage.isolate(stage.ranks_of(group)[1].host.name)
    stage.pass_s(T_STOP_S - 3)
    stage.network.heal()
    stage.pass_s(30)
    assert stage.is_(group, "running", 1)()
    assert stage.watch.counts["fenced"] == stage.watch.counts["expiries"] == 0


def test_a_killed_agent_finds_its_rank_running_and_adopts_it():
    stage = Stage()
    group = stage.submit(2, 1, FOREVER)
    stage.running(group)
    node = stage.ranks_of(group)[1]
    stage.lead_away_from([node])
    node.kill_agent()
    stage.pass_s(6)
    node.start_agent()
    stage.pass_s(30)
    assert stage.is_(group, "running", 1)()
    assert stage.watch.counts["starts"] == 2


def test_an_agent_gone_for_longer_than_the_lease_first_ends_the_old_attempt():
    """Rank 1's agent is away for 90 s. The group runs again; on return the old attempt is ended, only then are its
    cards free."""
    stage = Stage()
    group = stage.submit(2, 2, DEAF)
    stage.running(group)
    node = stage.ranks_of(group)[1]
    stage.lead_away_from([node])
    node.kill_agent()
    stage.running(group, attempt=2, within_s=T_LEASE_S + 5)
    assert node not in stage.ranks_of(group)
    stage.pass_s(90 - T_LEASE_S)
    assert any(hold.startswith(node.host.name + "/") for hold in stage.watch.holds), (
        "cards of a lost host stay releasing"
    )
    node.start_agent()
    stage.until(stage.ready(node.host.name), 20, "the host comes back")
    stage.until(
        lambda: not any(h.startswith(node.host.name + "/") for h in stage.watch.holds), 20, "its cards are free"
    )
    assert stage.is_(group, "running", 2)()


def test_a_host_without_guard_fences_by_its_shims_and_one_with_stopped_shims_by_its_guard():
    for fencer in ("guard", "shims"):
        stage = Stage()
        group = stage.submit(1, 1, DEAF)
        stage.running(group)
        node = stage.ranks_of(group)[0]
        stage.lead_away_from([node])
        if fencer == "guard":
            node.guard.end()
        else:
            for task in node.host.tasks.values():
                task.stop()
        stage.isolate(node.host.name)
        stage.running(group, attempt=2, within_s=T_LEASE_S + 5)


def test_a_rank_told_to_keep_running_outlives_the_silence_of_its_host():
    stage = Stage()
    group = stage.submit(1, 1, FOREVER, isolation="keep")
    stage.running(group)
    node = stage.ranks_of(group)[0]
    stage.lead_away_from([node])
    stage.isolate(node.host.name)
    stage.until(lambda: stage.watch.nodes[node.host.name]["state"] == LOST, T_LEASE_S + 5, "the host is lost")
    stage.pass_s(60)
    assert stage.is_(group, "running", 1)()
    stage.network.heal()
    stage.until(stage.ready(node.host.name), 20, "the host comes back")
    assert stage.is_(group, "running", 1)() and stage.watch.counts["starts"] == 1


def test_a_single_quiet_voter_keeps_granting():
    """Nothing is written for minutes; its quorum lease must stand all the same."""
    stage = Stage(hosts=1, voters=1)
    group = stage.submit(1, 1, runs(120))
    stage.running(group)
    stage.until(stage.is_(group, "completed"), 130, "it completes")
    assert stage.watch.counts["fenced"] == 0


@pytest.mark.attack(47)
def test_clocks_minutes_apart_cause_no_loss_and_delay_none():
    stage = Stage()
    stage.node("n2").host.wall_offset_ms = 360_000
    stage.node("n3").host.wall_offset_ms = -360_000
    stage.pass_s(120)
    assert stage.watch.counts["expiries"] == 0
    stage.lead_away_from([stage.node("n3")])
    stage.node("n3").power_off()
    took = stage.until(lambda: not stage.ready("n3")(), T_LEASE_S + 5, "the stopped host is lost")
    assert T_LEASE_S - 1 <= took <= T_LEASE_S + 2
