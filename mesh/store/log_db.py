"""log.db: entries and hard state, one transaction a write, every entry in a checksum chain.

One connection on one thread (the caller's duty), exclusive before WAL so that no second process and no reader can
meet it there. A write that returns is on the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import apsw

from mesh.core.raft.entry import Entry, EntryKind, HardState, entry_bytes
from mesh.store.chain import CHAIN_START, chain_crc, record_crc
from mesh.store.errors import DiskFailed, DiskFull, LogDamaged
from mesh.store.high_water import HighWater
from mesh.store.wal import copy_back

_INSERT = "INSERT OR REPLACE INTO log(idx, term, kind, crc, data) VALUES(?, ?, ?, ?, ?)"
_HARD_STATE = "INSERT OR REPLACE INTO hard_state(id, term, vote, committed, crc) VALUES(0, ?, ?, ?, ?)"


class TermRuns:
    """The term of every index, as the few points where it changes."""

    def __init__(self, runs: Sequence[tuple[int, int]] = ()) -> None:
        self._starts = [index for index, _ in runs]
        self._terms = [term for _, term in runs]

    def runs(self) -> list[tuple[int, int]]:
        """(first index, term) of each run."""
        return list(zip(self._starts, self._terms, strict=True))

    def append(self, index: int, term: int) -> None:
        if not self._terms or self._terms[-1] != term:
            self._starts.append(index)
            self._terms.append(term)

    def cut(self, index: int) -> None:
        """Forget indexes from `index` on."""
        while self._starts and self._starts[-1] >= index:
            self._starts.pop()
            self._terms.pop()

    def term(self, index: int) -> int:
        at = bisect_right(self._starts, index)
        return self._terms[at - 1] if at else 0


class LogDb:
    """Open with `open_log`. Raises DiskFull and DiskFailed from every write."""

    def __init__(self, path: Path, connection: apsw.Connection, mark: HighWater) -> None:
        self.path = path
        self.hard_state = HardState()
        self.last_index = 0
        self.terms = TermRuns()
        self._db = connection
        self._mark = mark
        self._crc = CHAIN_START

    def write(self, entries: Sequence[Entry], hard_state: HardState | None) -> None:
        """Append (replacing any suffix that the entries overlap) and save the hard state, all or nothing, durably."""
        try:
            if entries and entries[0].index <= self.last_index:
                self._lower_mark(entries[0].index - 1)
            crc = self._transaction(entries, hard_state)
        except apsw.FullError as error:
            self._roll_back()
            raise DiskFull(f"{self.path}: the disk is full ({error}); nothing of this write is stored") from error
        except (apsw.Error, OSError) as error:
            raise DiskFailed(f"{self.path}: writing failed ({error}); what is on the disk is unknown") from error
        if entries:
            self._crc = crc
            if entries[0].index <= self.last_index:
                self.terms.cut(entries[0].index)
            for entry in entries:
                self.terms.append(entry.index, entry.term)
            self.last_index = entries[-1].index
        if hard_state is not None:
            self.hard_state = hard_state

    def _transaction(self, entries: Sequence[Entry], hard_state: HardState | None) -> int:
        db, crc = self._db, self._crc
        db.execute("BEGIN IMMEDIATE")
        if entries:
            first = entries[0].index
            if first <= self.last_index:
                db.execute("DELETE FROM log WHERE idx >= ?", (first,))
                crc = self._crc_before(first)
            rows = []
            for e in entries:
                crc = chain_crc(crc, e.index, e.term, e.kind, e.data)
                rows.append((e.index, e.term, int(e.kind), crc, e.data))
            db.executemany(_INSERT, rows)
        if hard_state is not None:
            h = hard_state
            db.execute(_HARD_STATE, (h.term, h.vote, h.commit, record_crc(h.term, h.vote, h.commit)))
        db.execute("COMMIT")
        return crc

    def _crc_before(self, first: int) -> int:
        if first == 1:
            return CHAIN_START
        row = self._db.execute("SELECT crc FROM log WHERE idx = ?", (first - 1,)).fetchone()
        if row is None:
            raise DiskFailed(f"{self.path}: append at {first} leaves a gap after {self.last_index}")
        return int(row[0])

    def _lower_mark(self, index: int) -> None:
        if self._mark.index > index:
            self._mark.write(index, self.terms.term(index))

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def entries(self, lo: int, hi: int, max_bytes: int) -> list[Entry]:
        """Entries [lo, hi) within max_bytes, at least one. For what is no longer in memory."""
        found: list[Entry] = []
        size = 0
        try:
            for idx, term, kind, data in self._db.execute(
                "SELECT idx, term, kind, data FROM log WHERE idx >= ? AND idx < ? ORDER BY idx", (lo, hi)
            ):
                entry = Entry(idx, term, EntryKind(kind), data)
                size += entry_bytes(entry)
                if found and size > max_bytes:
                    break
                found.append(entry)
        except apsw.Error as error:
            raise DiskFailed(f"{self.path}: reading entries {lo}..{hi - 1} failed ({error})") from error
        return found

    def sync_mark(self) -> None:
        """Record that everything up to the last index may have been acknowledged."""
        if self._mark.index != self.last_index:
            try:
                self._mark.write(self.last_index, self.terms.term(self.last_index))
            except OSError as error:
                raise DiskFailed(f"{self.path.with_name('hwm')}: writing failed ({error})") from error

    def checkpoint(self) -> None:
        """Copy the WAL back. Explicit, because SQLite hides a failed automatic one."""
        copy_back(self._db, self.path)

    def close(self) -> None:
        """Clean stop: the mark is synced, the WAL copied back."""
        try:
            self.sync_mark()
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go without writing or syncing anything more: after a failed fsync a later one proves nothing."""
        self._mark.close()
        self._db.close()

    def load(self) -> list[Entry]:
        """Read and verify everything; the last entries, for the cache in memory. Raises LogDamaged."""
        try:
            problems = [str(row[0]) for row in self._db.execute("PRAGMA quick_check(3)")]
        except apsw.Error as error:
            raise damaged(self.path, f"it cannot be read ({error})") from error
        if problems != ["ok"]:
            raise damaged(self.path, f"SQLite's check says: {'; '.join(problems)}")
        try:
            self._load_hard_state()
            tail = self._load_chain()
        except apsw.Error as error:
            raise damaged(self.path, f"it cannot be read behind index {self.last_index} ({error})") from error
        self._check_mark()
        return tail

    def _load_hard_state(self) -> None:
        for term, vote, committed, crc in self._db.execute("SELECT term, vote, committed, crc FROM hard_state"):
            if crc != record_crc(term, vote, committed):
                raise damaged(self.path, "the checksum of term and vote does not fit")
            self.hard_state = HardState(term, vote, committed)

    def _load_chain(self) -> list[Entry]:
        tail: list[Entry] = []
        size = 0
        for idx, term, kind, crc, data in self._db.execute("SELECT idx, term, kind, crc, data FROM log ORDER BY idx"):
            expected = chain_crc(self._crc, idx, term, kind, data)
            if idx != self.last_index + 1 or crc != expected:
                at = min(idx, self.last_index + 1)
                raise damaged(self.path, f"the checksum chain breaks at index {at}", at)
            self._crc, self.last_index = crc, idx
            self.terms.append(idx, term)
            tail.append(Entry(idx, term, EntryKind(kind), data))
            size += len(data)
            if size > 4 << 20 or len(tail) > 8_192:
                del tail[: len(tail) // 2]
                size = sum(len(e.data) for e in tail)
        return tail

    def _check_mark(self) -> None:
        index, term = self._mark.index, self._mark.term
        if index > self.last_index:
            raise damaged(
                self.path, f"it ends at index {self.last_index}, but entries up to {index} were acknowledged", index
            )
        if index and self.terms.term(index) != term:
            raise damaged(
                self.path,
                f"index {index} has term {self.terms.term(index)}, but it was acknowledged with term {term}",
                index,
            )
        if self.hard_state.term < self.terms.term(self.last_index):
            raise damaged(
                self.path, f"it holds an entry of term {self.terms.term(self.last_index)}, but the saved term is older"
            )


def damaged(path: Path, what: str, index: int | None = None) -> LogDamaged:
    where = f"{path}, index {index}" if index is not None else str(path)
    return LogDamaged(
        f"{where}: {what}. This voter may have acknowledged entries that it no longer has, so it must not vote: "
        f"starting it could lose accepted commands. To re-seed: move {path.parent} aside, "
        "and join this host again as a new member with --join and an empty directory"
    )
