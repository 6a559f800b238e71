"""What the core hands to its driver: the Ready, and the state views inside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from mesh.core.raft.entry import Entry, HardState
from mesh.core.raft.message import Message, MsgType


class Role(IntEnum):
    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


@dataclass(slots=True, frozen=True)
class SoftState:
    """Not durable. leader is 0 when none is known."""

    leader: int
    role: Role


@dataclass(slots=True, frozen=True)
class ReadState:
    """The read named by context may be served once the state machine has applied index."""

    index: int
    context: bytes


URGENT = frozenset({MsgType.HEARTBEAT, MsgType.TIMEOUT_NOW})
"""They promise nothing about the sender's disk, and others wait for them."""
_EARLY = URGENT | {MsgType.APP}


@dataclass(slots=True)
class Ready:
    """One turn's work. See RawNode for the order in which a driver must do it."""

    soft_state: SoftState | None = None
    hard_state: HardState | None = None
    entries: list[Entry] = field(default_factory=list)
    committed_entries: list[Entry] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    read_states: list[ReadState] = field(default_factory=list)
    dropped_reads: list[bytes] = field(default_factory=list)
    """Contexts of own reads that will never be answered (leadership was lost first): retry or fail them."""
    must_sync: bool = False
    beat_round: int = 0
    """The newest heartbeat round among messages; 0 when there is none. See RawNode.quorum_acked_round."""
    early_allowed: bool = False

    def split_messages(self) -> tuple[list[Message], list[Message]]:
        """(may be sent while the write is under way, must wait for it).

        A leader's appends and heartbeats promise nothing about its own disk as long as it counts itself only
        after the write; every other message does.
        """
        if not self.early_allowed:
            return [], self.messages
        early = [m for m in self.messages if m.type in _EARLY]
        if not early:
            return early, self.messages
        return early, [m for m in self.messages if m.type not in _EARLY]
