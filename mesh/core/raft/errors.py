"""Every error the Raft core raises.

RaftError
  ProposalDropped     propose() could not append; carries a DropReason and the leader's id if one is known
  ReadDropped         read_index() has nowhere to go: no leader is known
  MessageRefused      step() got a message this node must not handle (wrong address, local type, stranger)
  WireError           (also ValueError) a peer's bytes do not have the shape of a message
  CompactedError      the storage no longer holds that index
  UnavailableError    the storage does not hold that index yet
  InvariantViolation  a promise of Raft or of the driver's contract is broken: stop the node, do not retry
"""

from __future__ import annotations

from enum import Enum


class DropReason(Enum):
    NO_LEADER = "no leader is known"
    NOT_LEADER = "this node is not the leader"
    UNCOMMITTED_FULL = "too many uncommitted bytes"


class RaftError(Exception):
    """Base of everything the core raises."""


class ProposalDropped(RaftError):
    """Raised when a proposal was not appended. Nothing was changed; the caller may retry elsewhere or later."""

    def __init__(self, reason: DropReason, leader: int = 0) -> None:
        hint = f"; the leader is {leader}" if leader else ""
        super().__init__(f"proposal dropped: {reason.value}{hint}")
        self.reason = reason
        self.leader = leader


class ReadDropped(RaftError):
    """Raised when a read-index request cannot be sent anywhere because no leader is known."""


class MessageRefused(RaftError):
    """Raised when a message must not be handled here. The state is unchanged."""


class WireError(RaftError, ValueError):
    """Raised when a decoded frame does not have the shape of a message."""


class CompactedError(RaftError):
    """Raised by a storage when the index was compacted away."""


class UnavailableError(RaftError):
    """Raised by a storage when the index is beyond its last entry."""


class InvariantViolation(RaftError):
    """Raised when carrying on could lose or fork committed entries: the process must stop serving."""
