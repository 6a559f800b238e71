"""Quorum arithmetic over a set of voters.

`Majority` is one set. Joint configurations will be a second class with the same three methods (the minimum of
two committed indexes, the worse of two vote results); everything else in the core goes through `Quorum`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Protocol


class VoteResult(Enum):
    PENDING = "pending"
    LOST = "lost"
    WON = "won"


class Quorum(Protocol):
    ids: tuple[int, ...]

    def committed_index(self, acked: Callable[[int], int]) -> int: ...

    def vote_result(self, votes: Mapping[int, bool]) -> VoteResult: ...

    def describe(self, acked: Callable[[int], int]) -> str: ...


class Majority:
    """More than half of ids."""

    __slots__ = ("_position", "ids", "needed")

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = tuple(sorted(set(ids)))
        if not self.ids or self.ids[0] <= 0:
            raise ValueError(f"voters must be one or more positive ids, not {self.ids}")
        self.needed = len(self.ids) // 2 + 1
        self._position = len(self.ids) - self.needed

    def committed_index(self, acked: Callable[[int], int]) -> int:
        """The highest index that a majority has acknowledged; acked(id) is 0 for a voter that never did."""
        return sorted(map(acked, self.ids))[self._position]

    def vote_result(self, votes: Mapping[int, bool]) -> VoteResult:
        """PENDING while missing votes could still win. Votes of strangers do not count."""
        granted = missing = 0
        for voter in self.ids:
            vote = votes.get(voter)
            if vote is None:
                missing += 1
            elif vote:
                granted += 1
        if granted >= self.needed:
            return VoteResult.WON
        return VoteResult.PENDING if granted + missing >= self.needed else VoteResult.LOST

    def describe(self, acked: Callable[[int], int]) -> str:
        """For people: what each voter has, and where the quorum stands."""
        each = ", ".join(f"{i} at {acked(i)}" for i in self.ids)
        return f"{self.needed} of {len(self.ids)} ({each}) reach {self.committed_index(acked)}"
