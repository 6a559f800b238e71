"""state.db: the applied state. Derived from the log, so it is rebuilt from there whenever it cannot be trusted.

Rows, feed and the applied index commit in one transaction, so a replay after a crash continues exactly where it
stopped. One writer, one thread at a time; readers have their own read-only connections (state_reader.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import msgpack

from mesh.core.raft.entry import Entry, EntryKind
from mesh.core.state.cluster import version_of
from mesh.core.state.outcome import Outcome, refused
from mesh.core.state.store import StateStore
from mesh.store import row_table
from mesh.store.errors import DirectoryRefused, DiskFailed, DiskFull
from mesh.store.feed import FEED_INDEXES_KEPT, PRIVATE, FeedFrame
from mesh.store.log_db import damaged
from mesh.store.row_codec import StateHash
from mesh.store.row_table import RowTable
from mesh.store.wal import copy_back

STATE_FORMAT = 1
HASH_SAMPLE_EVERY = 256
PRUNE_SLACK = 1_000
PRUNE_CHUNK = 2_000

Reducer = Callable[[StateStore, int, dict[str, Any]], Outcome]

_logger = logging.getLogger("heteroflow.state_db")
_SCHEMA = (
    row_table.SCHEMA
    + """
CREATE TABLE changes(idx INTEGER NOT NULL, ord INTEGER NOT NULL, entity TEXT NOT NULL, key TEXT NOT NULL, row BLOB,
                     nodes BLOB NOT NULL, PRIMARY KEY(idx, ord)) WITHOUT ROWID;
CREATE TABLE applied(id INTEGER PRIMARY KEY CHECK(id = 0), idx INTEGER NOT NULL, term INTEGER NOT NULL,
                     stamp_ms INTEGER NOT NULL, hash TEXT NOT NULL, feed_from INTEGER NOT NULL);
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
)


@dataclass(slots=True)
class AppliedBatch:
    """What one transaction did. outcomes: (index, term, outcome) of each command; samples: (index, state hash)."""

    index: int
    term: int
    stamp_ms: int
    state_hash: str
    outcomes: list[tuple[int, int, Outcome]] = field(default_factory=list)
    frames: list[FeedFrame] = field(default_factory=list)
    samples: list[tuple[int, str]] = field(default_factory=list)


class StateDb:
    """Open with `open_state`. Raises DiskFull (nothing of the batch happened) and DiskFailed."""

    def __init__(self, path: Path, connection: apsw.Connection, reduce: Reducer) -> None:
        self.path = path
        self._db = connection
        self._reduce = reduce
        self._hash = StateHash()
        self._rows = RowTable(connection, self._hash)
        self.index, self.term, self.stamp_ms, self._feed_from = 0, 0, 0, 1
        self._load_applied()
        self.cluster_version = version_of(self._rows)

    def _load_applied(self) -> None:
        rows: list[Any] = self._db.execute("SELECT idx, term, stamp_ms, hash, feed_from FROM applied").fetchall()
        (row,) = rows
        self.index, self.term, self.stamp_ms, self._feed_from = int(row[0]), int(row[1]), int(row[2]), int(row[4])
        self._hash.value = int(row[3], 16)

    @property
    def state_hash(self) -> str:
        return self._hash.hex()

    def apply(self, entries: Sequence[Entry]) -> AppliedBatch:
        """Apply committed entries in order, in one transaction."""
        batch = AppliedBatch(self.index, self.term, self.stamp_ms, "")
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for entry in entries:
                self._apply_one(entry, batch)
            batch.state_hash = self._hash.hex()
            self._save(batch)
            self._db.execute("COMMIT")
        except apsw.FullError as error:
            self._roll_back()
            raise DiskFull(f"{self.path}: the disk is full ({error}); nothing was applied") from error
        except apsw.Error as error:
            raise DiskFailed(f"{self.path}: applying failed ({error})") from error
        self.index, self.term, self.stamp_ms = batch.index, batch.term, batch.stamp_ms
        if any(change.entity == "meta" for frame in batch.frames for change in frame.changes):
            self.cluster_version = version_of(self._rows)
        return batch

    def _apply_one(self, entry: Entry, batch: AppliedBatch) -> None:
        if entry.index != batch.index + 1:
            raise DiskFailed(f"{self.path}: entry {entry.index} after {batch.index}: the state would be wrong")
        batch.index, batch.term = entry.index, entry.term
        if entry.data and entry.kind is EntryKind.NORMAL:
            command = msgpack.unpackb(entry.data)
            batch.outcomes.append((entry.index, entry.term, self._outcome(entry.index, command)))
            batch.stamp_ms = max(batch.stamp_ms, int(command.get("at_ms") or 0))
            changes = tuple([c for c in self._rows.take_changes() if c.entity not in PRIVATE])
            if changes:
                batch.frames.append(FeedFrame(entry.index, changes))
        if entry.index % HASH_SAMPLE_EVERY == 0:
            batch.samples.append((entry.index, self._hash.hex()))

    def _outcome(self, index: int, command: dict[str, Any]) -> Outcome:
        try:
            return self._reduce(self._rows, index, command)
        except apsw.Error:
            raise
        except Exception:
            # The same on every voter: a command that breaks its reducer is refused everywhere and changes nothing,
            # where ending the process would take all voters down, again after every restart.
            _logger.exception("index %d: the reducer of %r failed; refused without effect", index, command.get("t"))
            self._rows.undo_changes()
            return refused("reducer_failed", f"the command at index {index} could not be applied; it changed nothing")

    def _save(self, batch: AppliedBatch) -> None:
        if batch.frames:
            self._db.executemany(
                "INSERT INTO changes(idx, ord, entity, key, row, nodes) VALUES(?, ?, ?, ?, ?, ?)",
                [
                    (frame.index, at, c.entity, c.key, c.row, msgpack.packb(c.nodes))
                    for frame in batch.frames
                    for at, c in enumerate(frame.changes)
                ],
            )
        self._db.execute(
            "UPDATE applied SET idx = ?, term = ?, stamp_ms = ?, hash = ?",
            (batch.index, batch.term, batch.stamp_ms, batch.state_hash),
        )

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._rows.forget()
        self._load_applied()

    def tidy(self) -> None:
        """Upkeep between batches: copy the WAL back and drop a part of the old feed. Both may wait for a full disk."""
        copy_back(self._db, self.path)
        self.prune_feed()

    def prune_feed(self) -> bool:
        """Drop a part of the feed beyond what is kept. True when there is more to drop."""
        keep_from = self.index - FEED_INDEXES_KEPT + 1
        if keep_from - self._feed_from < PRUNE_SLACK:
            return False
        upto = min(keep_from, self._feed_from + PRUNE_CHUNK)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM changes WHERE idx < ?", (upto,))
            self._db.execute("UPDATE applied SET feed_from = ?", (upto,))
            self._db.execute("COMMIT")
        except apsw.FullError:
            self._roll_back()
            return False
        except apsw.Error as error:
            raise DiskFailed(f"{self.path}: pruning the feed failed ({error})") from error
        self._feed_from = upto
        return upto < keep_from

    def close(self) -> None:
        self._db.close()


def open_state(path: Path, cluster_id: str, reduce: Reducer, log_last: int, log_term: Callable[[int], int]) -> StateDb:
    """Open state.db, or start an empty one (the caller replays the log) when it is absent, empty or unreadable.

    Raises DirectoryRefused for another mesh's or a newer version's file, LogDamaged when it holds more than the log.
    """
    if path.exists() and path.stat().st_size == 0:
        _logger.warning("%s is empty; rebuilding it from the log", path)
        _remove(path)
    connection: apsw.Connection | None = None
    try:
        connection = _connect(path)
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0] == 0:
            _create(connection, cluster_id)
        _check_identity(path, connection, cluster_id)
        row_table.know_tenants(connection)
        state = StateDb(path, connection, reduce)
        if state.index > log_last or (state.index and log_term(state.index) != state.term):
            raise damaged(
                path.with_name("log.db"),
                f"state.db holds index {state.index} of term {state.term}, which is not in the log any more",
                state.index,
            )
        return state
    except (apsw.NotADBError, apsw.CorruptError) as error:
        if connection is not None:
            connection.close()
        aside = path.with_name(path.name + ".damaged")
        _logger.warning("%s cannot be used (%s); moved to %s, rebuilding it from the log", path, error, aside)
        path.replace(aside)
        _remove(path)
        return open_state(path, cluster_id, reduce, log_last, log_term)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, apsw.FullError):
            raise DiskFull(f"{path}: the disk is full; free some space and start again") from error
        if isinstance(error, apsw.Error):
            raise DiskFailed(f"{path}: opening failed ({error})") from error
        raise


def memory_state(cluster_id: str, reduce: Reducer) -> tuple[StateDb, apsw.Connection]:
    """A state that ends with the process, and its connection for a reader on the same thread."""
    connection = apsw.Connection(":memory:")
    _create(connection, cluster_id)
    row_table.know_tenants(connection)
    return StateDb(Path(":memory:"), connection, reduce), connection


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "wal_autocheckpoint=0", "cache_size=-4096"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    if problems != ["ok"]:
        connection.close()
        raise apsw.CorruptError("; ".join(problems))
    return connection


def _create(connection: apsw.Connection, cluster_id: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_SCHEMA)
    meta = [("format", str(STATE_FORMAT)), ("cluster_id", cluster_id)]
    connection.executemany("INSERT INTO meta(name, value) VALUES(?, ?)", meta)
    connection.execute(
        "INSERT INTO applied(id, idx, term, stamp_ms, hash, feed_from) VALUES(0, 0, 0, 0, ?, 1)", (StateHash().hex(),)
    )
    connection.execute("COMMIT")


def _check_identity(path: Path, connection: apsw.Connection, cluster_id: str) -> None:
    meta = {str(name): str(value) for name, value in connection.execute("SELECT name, value FROM meta")}
    if int(meta.get("format", "0")) > STATE_FORMAT:
        raise DirectoryRefused(
            f"{path} was written by a newer version (format {meta['format']}, this one reads {STATE_FORMAT}); "
            "install that version again or a newer one"
        )
    if meta.get("cluster_id") != cluster_id:
        raise DirectoryRefused(f"{path} belongs to mesh {meta.get('cluster_id')!r}, not to {cluster_id!r}")


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
