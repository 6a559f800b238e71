"""Schedules that tell a sound lease from an unsound one; the mutants are judged by them."""

from __future__ import annotations

from tests.sim.loop import MS
from tests.sim.stage import DEAF, FOREVER, Stage


class Timing(dict[str, float]):
    """Seconds since the host fell silent."""

    host = ""


def isolated_host() -> tuple[Stage, Timing]:
    """A host with a rank that ignores SIGTERM is cut off for good."""
    stage = Stage(hosts=3)
    group = stage.submit(2, 2, DEAF)
    stage.running(group)
    node = stage.ranks_of(group)[1]
    stage.lead_away_from([node])
    cut_at = stage.now_s()
    stage.isolate(node.host.name)
    timing = Timing()
    timing.host = node.host.name
    stage.until(
        lambda: not any(task.running for task in node.host.tasks.values()), 60, "the rank on the isolated host is gone"
    )
    timing["first rank gone"] = stage.now_s() - cut_at
    stage.running(group, attempt=2, within_s=60)
    timing["running again"] = stage.now_s() - cut_at
    return stage, timing


def late_grant() -> Stage:
    """A host's agent is stopped while a grant is on its way, and goes on just before its deadline; nothing of it gets
    through from then on. The leader counts from the renewal, so the host must too."""
    stage = Stage()
    group = stage.submit(1, 1, DEAF)
    stage.running(group)
    node = stage.ranks_of(group)[0]
    stage.lead_away_from([node])
    granted = node.agent._holder.granted_sent_ns
    stage.until(lambda: node.agent._holder.granted_sent_ns != granted, 5, "a lease is renewed")
    next_ns = node.agent._holder.next_ns
    stage.until(lambda: node.agent._holder.next_ns != next_ns, 5, "the next renewal is on its way")
    node.agent.stop()
    stage.pass_s(0.1)
    stage.isolate(node.host.name)
    left_ns = node.agent._lease.deadline_ns - node.host.now_ns()
    stage.loop.run_until(stage.loop.now + left_ns - 100 * MS)
    node.agent.cont(in_order=True)
    stage.running(group, attempt=2, within_s=60)
    return stage


def stale_rejoin() -> Stage:
    """A host's request to be taken back is on its way twice, as one through a voter that was stopped would be. The
    second copy arrives when the host is lost again, with a rank that keeps running there."""
    stage = Stage(cards=1)
    node = stage.nodes[3]
    stage.isolate(node.host.name)
    stage.until(lambda: not stage.ready(node.host.name)(), 30, "the host is lost")
    requests = node.agent.overhear("RejoinNode")
    stage.network.heal()
    stage.until(stage.ready(node.host.name), 30, "the host is taken back")
    groups = [stage.submit(1, 1, FOREVER, isolation="keep", through=stage.the_leader().host) for _ in range(4)]
    for group in groups:
        stage.running(group)
    kept = next(g for g in groups if stage.ranks_of(g) == [node])
    stage.isolate(node.host.name)
    stage.until(lambda: not stage.ready(node.host.name)(), 30, "the host is lost again")
    stage.client.stop_group(next(g for g in groups if g != kept))
    stage.the_leader().propose_here(requests[0], None, lambda value, problem: None)
    stage.pass_s(30)
    assert not stage.ready(node.host.name)() and stage.is_(kept, "running", 1)()
    return stage
