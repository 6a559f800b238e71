"""What the core reads back from stable storage, and the in-memory twin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mesh.core.raft.entry import NO_LIMIT, Entry, HardState, limit_size
from mesh.core.raft.errors import CompactedError, InvariantViolation, UnavailableError


class Storage(Protocol):
    """The stable log. The core only reads; the driver writes what a Ready tells it to.

    Reads must see everything persisted before the last advance(). They are called on every append and apply,
    so an implementation on a database keeps the tail of the log in memory.
    """

    def initial_state(self) -> tuple[HardState, tuple[int, ...]]:
        """Hard state and voters' ids, read once at start. A storage that does not save commit gives 0 there."""
        ...

    def first_index(self) -> int:
        """Index of the first entry still held; 1 for a log that was never compacted, also while it is empty."""
        ...

    def last_index(self) -> int:
        """Index of the last entry; first_index() - 1 when there is none."""
        ...

    def term(self, index: int) -> int:
        """Term of an entry in [first_index() - 1, last_index()]; 0 for index 0.

        Raises CompactedError below and UnavailableError above that range.
        """
        ...

    def entries(self, lo: int, hi: int, max_bytes: int) -> list[Entry]:
        """Entries [lo, hi), as many as max_bytes allows, but at least one. Raises as term() does."""
        ...


class MemoryStorage:
    """A Storage in memory, for tests, the simulator and single-process use. Writing is immediate and whole."""

    def __init__(self, voters: Iterable[int] = ()) -> None:
        self.hard_state = HardState()
        self.voters = tuple(voters)
        self._offset = 0  # index of the last entry compacted away
        self._offset_term = 0
        self._entries: list[Entry] = []

    def initial_state(self) -> tuple[HardState, tuple[int, ...]]:
        return self.hard_state, self.voters

    def first_index(self) -> int:
        return self._offset + 1

    def last_index(self) -> int:
        return self._offset + len(self._entries)

    def term(self, index: int) -> int:
        if index == self._offset:
            return self._offset_term
        if index < self._offset:
            raise CompactedError(f"index {index} is compacted; the log starts at {self._offset + 1}")
        if index > self._offset + len(self._entries):
            raise UnavailableError(f"index {index} is beyond the last, {self.last_index()}")
        return self._entries[index - self._offset - 1].term

    def entries(self, lo: int, hi: int, max_bytes: int = NO_LIMIT) -> list[Entry]:
        if lo <= self._offset:
            raise CompactedError(f"index {lo} is compacted; the log starts at {self._offset + 1}")
        if hi > self.last_index() + 1:
            raise UnavailableError(f"index {hi - 1} is beyond the last, {self.last_index()}")
        return limit_size(self._entries[lo - self._offset - 1 : hi - self._offset - 1], max_bytes)

    def set_hard_state(self, hard_state: HardState) -> None:
        self.hard_state = hard_state

    def append(self, entries: list[Entry]) -> None:
        """Append, first dropping any suffix that the new entries replace. A gap is a driver's bug."""
        if not entries:
            return
        at = entries[0].index - self._offset - 1
        if not 0 <= at <= len(self._entries):
            raise InvariantViolation(f"append at {entries[0].index} leaves a gap after {self.last_index()}")
        del self._entries[at:]
        self._entries.extend(entries)

    def compact(self, index: int) -> None:
        """Forget entries up to and including index (which stays known by its term)."""
        if index <= self._offset:
            raise CompactedError(f"index {index} is already compacted")
        term = self.term(index)
        del self._entries[: index - self._offset]
        self._offset, self._offset_term = index, term
