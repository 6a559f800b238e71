"""The log as the core sees it: the stable part in the storage, the tail that is still to be written."""

from __future__ import annotations

from mesh.core.raft.entry import NO_LIMIT, Entry, limit_size
from mesh.core.raft.errors import CompactedError, InvariantViolation
from mesh.core.raft.storage import Storage


class RaftLog:
    """committed and applied never fall, and applied <= committed <= last_index.

    Entries from `offset` on are not known to be stable; they are the next Ready's entries.
    """

    __slots__ = ("applied", "apply_unstable", "committed", "max_apply_bytes", "offset", "storage", "unstable")

    def __init__(self, storage: Storage, commit: int, applied: int, apply_unstable: bool, max_apply_bytes: int) -> None:
        self.storage = storage
        self.offset = storage.last_index() + 1
        self.unstable: list[Entry] = []
        compacted = storage.first_index() - 1
        # A storage may save commit lazily or not at all; what was applied was committed.
        self.applied = max(applied, compacted)
        self.committed = max(commit, self.applied)
        self.apply_unstable = apply_unstable
        self.max_apply_bytes = max_apply_bytes
        if self.committed >= self.offset:
            raise InvariantViolation(
                f"the log ends at {self.offset - 1} but {self.committed} entries were committed or applied: "
                "part of the log was lost, so this node must not vote"
            )

    def last_index(self) -> int:
        return self.offset - 1 + len(self.unstable)

    def stable_index(self) -> int:
        return self.offset - 1

    def last_term(self) -> int:
        if self.unstable:
            return self.unstable[-1].term
        return self.storage.term(self.offset - 1)

    def term(self, index: int) -> int:
        """Term of an entry, 0 beyond the end. Raises CompactedError before the start."""
        at = index - self.offset
        if at >= 0:
            return self.unstable[at].term if at < len(self.unstable) else 0
        return self.storage.term(index)

    def matches(self, index: int, term: int) -> bool:
        try:
            return self.term(index) == term
        except CompactedError:
            return False

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Whether a log with this end is at least as fresh as ours."""
        mine = self.last_term()
        return last_term > mine or (last_term == mine and last_index >= self.last_index())

    def conflict_point(self, index: int, term: int) -> tuple[int, int]:
        """The greatest index <= index whose term is <= term, and its term: nothing above it can agree.

        The term is 0 when the search runs into the compacted part.
        """
        index = min(index, self.last_index())
        try:
            while (mine := self.term(index)) > term:
                index -= 1
        except CompactedError:
            return index, 0
        return index, mine

    def slice(self, lo: int, hi: int, max_bytes: int) -> list[Entry]:
        """Entries [lo, hi) within max_bytes, at least one. Raises CompactedError."""
        offset = self.offset
        if lo >= hi:
            return []
        if lo >= offset:
            return limit_size(self.unstable[lo - offset : hi - offset], max_bytes)
        stable_hi = min(hi, offset)
        entries = self.storage.entries(lo, stable_hi, max_bytes)
        if len(entries) < stable_hi - lo or hi <= offset:
            return entries
        return limit_size(entries + self.unstable[: hi - offset], max_bytes)

    def append(self, entries: list[Entry]) -> None:
        """Append, replacing any suffix from the first new index on."""
        if not entries:
            return
        first = entries[0].index
        if first <= self.committed:
            raise InvariantViolation(f"append at {first} would overwrite committed entries up to {self.committed}")
        at = first - self.offset
        if at == len(self.unstable):
            self.unstable.extend(entries)
        elif at <= 0:
            self.offset = first
            self.unstable = list(entries)
        else:
            self.unstable = self.unstable[:at] + entries

    def maybe_append(self, index: int, log_term: int, commit: int, entries: list[Entry]) -> int | None:
        """Take a leader's append after (index, log_term). Last index it covers, None if the logs disagree there."""
        if not self.matches(index, log_term):
            return None
        for i, entry in enumerate(entries):
            if not self.matches(entry.index, entry.term):
                self.append(entries[i:] if i else entries)
                break
        last = index + len(entries)
        self.commit_to(min(commit, last))
        return last

    def commit_to(self, index: int) -> None:
        if index <= self.committed:
            return
        if index > self.last_index():
            raise InvariantViolation(
                f"the leader says {index} is committed and acknowledged here, but the log ends at "
                f"{self.last_index()}: part of the log was lost, so this node must not vote"
            )
        self.committed = index

    def next_committed(self) -> list[Entry]:
        """Committed entries to apply now."""
        hi = self._apply_limit()
        if hi <= self.applied:
            return []
        return self.slice(self.applied + 1, hi + 1, self.max_apply_bytes)

    def has_next_committed(self) -> bool:
        return self._apply_limit() > self.applied

    def _apply_limit(self) -> int:
        if self.apply_unstable:
            return self.committed
        return min(self.committed, self.offset - 1)

    def applied_to(self, index: int) -> None:
        if not self.applied <= index <= self.committed:
            raise InvariantViolation(f"applied {index} is not between {self.applied} and {self.committed}")
        self.applied = index

    def stable_to(self, index: int, term: int) -> None:
        """The entry (index, term) and all before it are written. Ignored if it was replaced meanwhile."""
        at = index - self.offset
        if 0 <= at < len(self.unstable) and self.unstable[at].term == term:
            del self.unstable[: at + 1]
            self.offset = index + 1

    def all_entries(self) -> list[Entry]:
        """The whole log still held, for tests and dumps."""
        return self.slice(self.storage.first_index(), self.last_index() + 1, NO_LIMIT)
