"""Schedules of planned work: while the mesh is held nobody is fenced or given up, and at its end no rank lives twice.
The mutants of the hold are judged by them."""

from __future__ import annotations

from tests.sim.loop import S
from tests.sim.mesh_world import Node
from tests.sim.stage import DEAF, Stage


def held(for_s: int, **stage_options: int) -> tuple[Stage, str, Node]:
    """A gang of two that ignores SIGTERM, its second host away from the leader, and leases of the hold there."""
    stage = Stage(**stage_options)
    group = stage.submit(2, 1, DEAF)
    stage.running(group)
    node = stage.ranks_of(group)[1]
    stage.lead_away_from([node])
    stage.client.order("HoldMesh", for_s=for_s, by="op", reason="new switch")
    stage.until(lambda: lease_left_s(node) > for_s / 2 + 9, 10, "the host has a longer lease")
    return stage, group, node


def lease_left_s(node: Node) -> float:
    return (node.agent._lease.deadline_ns - node.host.now_ns()) / S


def change_leader(stage: Stage) -> None:
    leader = stage.the_leader()
    leader.crash()
    stage.pass_s(8)
    stage.node(leader.host).start_voter()
    stage.the_leader()


def is_dark(node: Node) -> bool:
    return not any(task.running for task in node.host.tasks.values())


def silence_beyond_the_hold(for_s: int = 30) -> dict[str, float]:
    """The host stays cut off. Seconds since the hold began until its rank is gone and until the gang runs again."""
    stage, group, node = held(for_s)
    began = stage.now_s()
    stage.isolate(node.host.name)
    timing = {}
    stage.until(lambda: is_dark(node), for_s + 30, "the rank of the silent host is gone")
    timing["gone"] = stage.now_s() - began
    stage.running(group, attempt=2, within_s=60)
    timing["running again"] = stage.now_s() - began
    return timing


def leader_changes_in_the_hold(for_s: int = 60, leaders: int = 2) -> dict[str, float]:
    """One leader after the other is killed while the host is silent: each must know what those before it granted."""
    stage, group, node = held(for_s, hosts=5, voters=5)
    stage.pass_s(2)
    began = stage.now_s()
    stage.isolate(node.host.name)
    for _ in range(leaders):
        change_leader(stage)
    stage.until(lambda: is_dark(node), for_s + 60, "the rank of the silent host is gone")
    gone = stage.now_s() - began
    stage.running(group, attempt=2, within_s=90)
    return {"gone": gone, "running again": stage.now_s() - began}


def released_early(for_s: int = 60) -> None:
    """The hold is released while the host is silent, and the leader changes: nobody can take its long lease back."""
    stage, group, node = held(for_s, hosts=5, voters=5)
    stage.isolate(node.host.name)
    stage.client.order("ReleaseHold", by="op")
    stage.pass_s(3)
    change_leader(stage)
    stage.running(group, attempt=2, within_s=for_s + 30)


def last_grant_before_the_end(for_s: int = 30) -> None:
    """The host falls silent when the hold is about to end: its last lease must be no longer than that of others."""
    stage, group, node = held(for_s)
    stage.pass_s(for_s - 4)
    stage.isolate(node.host.name)
    stage.until(lambda: is_dark(node), for_s + 60, "the rank of the silent host is gone")
    stage.running(group, attempt=2, within_s=60)
