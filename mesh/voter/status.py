"""The status answer: what an operator or a probe wants to know of one voter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.core.raft.ready import Role

if TYPE_CHECKING:
    from mesh.voter.service import Voter

FSYNC_QUANTILE = 0.99


def status_of(voter: Voter) -> dict[str, Any]:
    status = voter.node.status()
    voters = []
    alive = 0
    for record in voter.roster.voters:
        progress = status.progress.get(record.raft_id)
        me = record.raft_id == status.id
        link = voter.links.get(record.raft_id)
        connected = me or (link is not None and link.connected)
        alive += connected
        voters.append(
            {
                "raft_id": record.raft_id,
                "node": record.node,
                "match": progress.match if progress is not None else None,
                "connected": connected,
            }
        )
    majority = len(voters) // 2 + 1
    return {
        "raft_id": status.id,
        "role": "leader"
        if status.role is Role.LEADER
        else "candidate"
        if "CANDIDATE" in status.role.name
        else "follower",
        "leader": status.leader,
        "term": status.term,
        "commit": status.commit,
        "applied": voter.machine.index,
        "last": status.last_index,
        "voters": voters,
        "spare": alive - majority,
        "state_hash": voter.machine.state_hash,
        "alarm": voter.agreement.alarm,
        "disk_full": voter.proposals.disk_is_full,
        "fsync_p99_ms": _quantile(sorted(voter.raft.fsync_ms)),
        "waiting": len(voter.proposals),
        "subscribers": len(voter.feeds.live),
        "silence_ms": voter.leases.silence_ms(),
        "step_down_reason": status.step_down_reason,
        "foreign_frames": voter.counters.foreign_frames,
        "malformed_frames": voter.counters.malformed_frames,
        "dropped_items": voter.counters.dropped_items,
    }


def _quantile(values: list[float]) -> float | None:
    return round(values[min(len(values) - 1, int(len(values) * FSYNC_QUANTILE))], 3) if values else None
