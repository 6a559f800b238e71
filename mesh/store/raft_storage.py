"""The log as the Raft core reads it: terms and the newest entries in memory, older entries from log.db on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mesh.core.raft.entry import Entry, HardState, limit_size
from mesh.core.raft.errors import UnavailableError
from mesh.store.log_db import TermRuns

CACHE_ENTRIES = 4_096
CACHE_BYTES = 8 * 1024 * 1024


class RaftStorage:
    """A Storage of mesh.core.raft. `persisted` tells it what a finished write made durable.

    load(lo, hi, max_bytes) reads from log.db, blocking; only members far behind make the core ask for that.
    """

    def __init__(
        self,
        hard_state: HardState,
        voters: tuple[int, ...],
        terms: Sequence[tuple[int, int]],
        last_index: int,
        tail: Sequence[Entry],
        load: Callable[[int, int, int], list[Entry]],
    ) -> None:
        self._initial = (hard_state, voters)
        self._terms = TermRuns(terms)
        self._last = last_index
        self._load = load
        self._recent: list[Entry] = []
        self._bytes = 0
        self._keep(tail)

    def initial_state(self) -> tuple[HardState, tuple[int, ...]]:
        return self._initial

    def first_index(self) -> int:
        return 1

    def last_index(self) -> int:
        return self._last

    def term(self, index: int) -> int:
        if index > self._last:
            raise UnavailableError(f"index {index} is beyond the last, {self._last}")
        return self._terms.term(index)

    def entries(self, lo: int, hi: int, max_bytes: int) -> list[Entry]:
        if hi > self._last + 1:
            raise UnavailableError(f"index {hi - 1} is beyond the last, {self._last}")
        first = self._last + 1 - len(self._recent)
        if lo >= first:
            return limit_size(self._recent[lo - first : hi - first], max_bytes)
        return self._load(lo, hi, max_bytes)

    def persisted(self, entries: Sequence[Entry]) -> None:
        """These are durable now, in place of any suffix they overlap."""
        if not entries:
            return
        first = entries[0].index
        if first <= self._last:
            self._terms.cut(first)
            dropped = min(self._last + 1 - first, len(self._recent))
            if dropped:
                self._bytes -= sum(len(e.data) for e in self._recent[-dropped:])
                del self._recent[-dropped:]
        for entry in entries:
            self._terms.append(entry.index, entry.term)
        self._last = entries[-1].index
        self._keep(entries)

    def _keep(self, entries: Sequence[Entry]) -> None:
        recent = self._recent
        recent.extend(entries)
        self._bytes += sum([len(e.data) for e in entries])
        # Trimmed in large steps: dropping one from the front of a list costs as much as dropping a thousand.
        if len(recent) > CACHE_ENTRIES or self._bytes > CACHE_BYTES:
            while len(recent) > 1 and (len(recent) > CACHE_ENTRIES // 2 or self._bytes > CACHE_BYTES // 2):
                cut = (len(recent) + 3) // 4
                self._bytes -= sum([len(e.data) for e in recent[:cut]])
                del recent[:cut]
