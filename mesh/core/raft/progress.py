"""A leader's view of one member, and of all of them."""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from mesh.core.raft.quorum import Quorum, VoteResult


class ProgressState(IntEnum):
    PROBE = 0  # where the member's log agrees is not known: one append per heartbeat
    REPLICATE = 1  # known: appends stream ahead of the answers, up to the window
    SNAPSHOT = 2  # reserved: the entries it needs are compacted away


class Progress:
    """match: highest index known to be in the member's log. next: first index to send."""

    __slots__ = ("inflights", "match", "next", "probe_sent", "recent_active", "sent_commit", "state", "window")

    def __init__(self, next_index: int, window: int, match: int = 0) -> None:
        self.match = match
        self.next = next_index
        self.state = ProgressState.PROBE
        self.recent_active = False
        self.probe_sent = False
        self.inflights: deque[int] = deque()  # last index of each append under way, rising
        self.window = window
        self.sent_commit = 0

    def become(self, state: ProgressState) -> None:
        self.state = state
        self.probe_sent = False
        self.inflights.clear()
        self.next = self.match + 1

    def maybe_update(self, index: int) -> bool:
        """Take an acknowledgement of index. False if it says nothing new."""
        updated = self.match < index
        if updated:
            self.match = index
            self.probe_sent = False
        if self.next <= index:
            self.next = index + 1
        return updated

    def maybe_decrease_to(self, rejected: int, hint: int) -> bool:
        """Take a rejection of the append after `rejected`; hint is where to look next. False if it is stale."""
        if self.state is ProgressState.REPLICATE:
            if rejected <= self.match:
                return False
            self.next = self.match + 1
            return True
        # A probing member gets one append at a time, so only an answer about exactly that one is fresh.
        if self.next - 1 != rejected:
            return False
        self.next = max(min(rejected, hint + 1), 1)
        self.probe_sent = False
        return True

    def paused(self) -> bool:
        if self.state is ProgressState.REPLICATE:
            return len(self.inflights) >= self.window
        return self.probe_sent or self.state is ProgressState.SNAPSHOT

    def free_to(self, index: int) -> None:
        inflights = self.inflights
        while inflights and inflights[0] <= index:
            inflights.popleft()

    def free_first(self) -> None:
        self.inflights.popleft()


class Tracker:
    """Progress and votes of the members of one configuration."""

    __slots__ = ("progress", "quorum", "votes", "window")

    def __init__(self, quorum: Quorum, window: int) -> None:
        self.quorum = quorum
        self.window = window
        self.progress: dict[int, Progress] = {}
        self.votes: dict[int, bool] = {}

    def reset(self, me: int, last_index: int, own_match: int) -> None:
        self.votes = {}
        self.progress = {i: Progress(last_index + 1, self.window, own_match if i == me else 0) for i in self.quorum.ids}

    def match_of(self, member: int) -> int:
        return self.progress[member].match

    def committed(self) -> int:
        return self.quorum.committed_index(self.match_of)

    def record_vote(self, member: int, granted: bool) -> VoteResult:
        """Only a member's first answer counts: a delayed duplicate must not turn it round."""
        self.votes.setdefault(member, granted)
        return self.quorum.vote_result(self.votes)

    def quorum_active(self) -> bool:
        active = {i: p.recent_active for i, p in self.progress.items()}
        return self.quorum.vote_result(active) is VoteResult.WON
