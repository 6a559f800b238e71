"""Bookkeeping of read-index requests on the leader.

A read may be served at index I, the commit index when it was asked, once a quorum has confirmed, after it was
asked, that this node still leads. Heartbeats carry a context that the answers echo; the two classes differ in
what that context is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from mesh.core.raft.quorum import Quorum, VoteResult


@dataclass(slots=True, frozen=True)
class ReadRequest:
    origin: int
    """The member to answer; the node itself for its own reads."""
    context: bytes


@dataclass(slots=True)
class PendingRead:
    request: ReadRequest
    index: int


class ReadTracker(Protocol):
    """What the leader needs; reset at every change of role or term."""

    def add(self, request: ReadRequest, commit: int) -> bytes | None:
        """Note a read. Returns the context to broadcast at once, or None to wait for the turn's own round."""
        ...

    def next_context(self) -> bytes:
        """The context for a heartbeat round that starts now."""
        ...

    def ack(self, member: int, context: bytes) -> list[PendingRead]:
        """Take a heartbeat's answer; the reads it confirms, in order of asking."""
        ...

    def reset(self) -> None: ...

    def pending(self) -> list[PendingRead]: ...


class RoundReads:
    """The context is a round number. A read waits for the first round that starts after it was asked.

    Rounds are numbered for the life of the object, over all terms, so that the driver can use a number as the
    key of a send time. Confirmed rounds also feed the quorum lease.
    """

    def __init__(self, me: int, quorum: Quorum) -> None:
        self._me = me
        self._quorum = quorum
        self.round = 0
        self.acked_round = 0
        self._acks: dict[int, int] = {}
        self._queue: deque[tuple[int, PendingRead]] = deque()

    def add(self, request: ReadRequest, commit: int) -> bytes | None:
        self._queue.append((self.round + 1, PendingRead(request, commit)))
        return None

    def next_context(self) -> bytes:
        self.round += 1
        self._acks[self._me] = self.round
        return self.round.to_bytes(8, "big")

    def waits_for_round(self) -> bool:
        """Whether some read was asked after the newest round started."""
        return bool(self._queue) and self._queue[-1][0] > self.round

    def ack(self, member: int, context: bytes) -> list[PendingRead]:
        if len(context) != 8:
            return []
        number = int.from_bytes(context, "big")
        if not self._acks.get(member, 0) < number <= self.round:
            return []
        self._acks[member] = number
        return self.confirmed()

    def confirmed(self) -> list[PendingRead]:
        self.acked_round = max(self.acked_round, self._quorum.committed_index(self._ack_of))
        done = []
        while self._queue and self._queue[0][0] <= self.acked_round:
            done.append(self._queue.popleft()[1])
        return done

    def _ack_of(self, member: int) -> int:
        return self._acks.get(member, 0)

    def reset(self) -> None:
        # Answers to rounds of an earlier leadership must not count in a later one.
        self.acked_round = 0
        self._acks.clear()
        self._queue.clear()

    def pending(self) -> list[PendingRead]:
        return [read for _, read in self._queue]


class ContextReads:
    """etcd 3.4's way: each read's own context goes out in a round of its own; a later one confirms the earlier."""

    def __init__(self, me: int, quorum: Quorum) -> None:
        self._me = me
        self._quorum = quorum
        self._reads: dict[bytes, PendingRead] = {}  # in order of asking
        self._acks: dict[bytes, dict[int, bool]] = {}

    def add(self, request: ReadRequest, commit: int) -> bytes | None:
        if request.context not in self._reads:
            self._reads[request.context] = PendingRead(request, commit)
            self._acks[request.context] = {self._me: True}
        return request.context

    def next_context(self) -> bytes:
        return next(reversed(self._reads), b"")

    def ack(self, member: int, context: bytes) -> list[PendingRead]:
        acks = self._acks.get(context)
        if acks is None:
            return []
        acks[member] = True
        if self._quorum.vote_result(acks) is not VoteResult.WON:
            return []
        done = []
        for key in list(self._reads):
            done.append(self._reads.pop(key))
            del self._acks[key]
            if key == context:
                break
        return done

    def reset(self) -> None:
        self._reads.clear()
        self._acks.clear()

    def pending(self) -> list[PendingRead]:
        return list(self._reads.values())
