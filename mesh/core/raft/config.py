"""Settings of one node, with the reason beside each.

The last group are the differences from etcd's raft library 3.4: each has etcd's behaviour as a value, which the
lock-step oracle sets, and a scenario of its own in tests/data/raft. `etcd_options()` returns them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

from mesh.core.raft.entry import NO_LIMIT
from mesh.core.raft.storage import Storage


class Rng(Protocol):
    """The part of random.Random that the core needs."""

    def randrange(self, stop: int, /) -> int: ...


SelfAck = Literal["after_persist", "on_append"]
ConflictHints = Literal["by_term", "last_index"]
AppendOn = Literal["ready", "propose"]
Reads = Literal["rounds", "contexts"]
ProbeExit = Literal["on_match", "on_progress"]


class EtcdOptions(TypedDict):
    self_ack: SelfAck
    conflict_hints: ConflictHints
    append_on: AppendOn
    reads: Reads
    probe_exit: ProbeExit
    lease_after_restart: bool


@dataclass(slots=True, frozen=True)
class Config:
    id: int
    storage: Storage
    rng: Rng
    """Draws the election timeout from [election_ticks, 2 * election_ticks)."""
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    applied: int = 0
    """Index up to which the state machine has already applied: nothing at or below it is released again."""
    pre_vote: bool = True
    """A member that was cut off asks before it raises the term, so its return disturbs nobody."""
    check_quorum: bool = True
    """A leader without a quorum steps down, and members that hear a leader ignore campaigns (the lease)."""
    max_msg_bytes: int = 256 * 1024
    max_apply_bytes: int = 1024 * 1024
    """Limit of committed entries per Ready, so that one turn stays short."""
    max_inflight: int = 256
    max_uncommitted_bytes: int = 64 * 1024 * 1024
    """Backpressure: a leader that cannot commit must not fill its memory. One proposal always fits."""

    self_ack: SelfAck = "after_persist"
    """When a leader counts its own copy. after_persist: at advance(), so it may send while it writes, a single
    voter commits only what is on disk, and nothing is applied before it is in the own stable log."""
    conflict_hints: ConflictHints = "by_term"
    """What a rejected append answers. by_term skips a whole conflicting term per round trip."""
    append_on: AppendOn = "ready"
    """When appends are made. ready: once per Ready, so proposals of one loop turn share one message."""
    reads: Reads = "rounds"
    """rounds: every heartbeat round is numbered, reads of one turn share a round, and rounds date the quorum
    lease; reads pending when leadership is lost are reported, not kept. contexts: one round per read."""
    probe_exit: ProbeExit = "on_match"
    """on_match: an acknowledgement that equals match also ends probing, not only one that exceeds it."""
    lease_after_restart: bool = True
    """A restarted member may have acknowledged a heartbeat just before it died: for election_ticks it ignores
    campaigns as if it still heard that leader, else the leader's quorum lease would be void."""

    def __post_init__(self) -> None:
        if self.id <= 0:
            raise ValueError(f"id must be positive, not {self.id}")
        if self.heartbeat_ticks <= 0 or self.election_ticks <= self.heartbeat_ticks:
            raise ValueError(
                f"need 0 < heartbeat_ticks < election_ticks, not {self.heartbeat_ticks} and {self.election_ticks}"
            )
        if self.max_inflight <= 0:
            raise ValueError(f"max_inflight must be positive, not {self.max_inflight}")
        if not 0 <= self.max_msg_bytes <= NO_LIMIT or self.max_apply_bytes < 0 or self.max_uncommitted_bytes <= 0:
            raise ValueError("byte limits are out of range")


def etcd_options() -> EtcdOptions:
    """Every difference set to what etcd's raft library 3.4 does."""
    return {
        "self_ack": "on_append",
        "conflict_hints": "last_index",
        "append_on": "propose",
        "reads": "contexts",
        "probe_exit": "on_progress",
        "lease_after_restart": False,
    }
