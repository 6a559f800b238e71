"""Opening log.db: whose it is, whether it is whole, and what to do when it is not."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import apsw

from mesh.core.raft.entry import Entry
from mesh.store.errors import DirectoryInUse, DirectoryRefused, DiskFailed, DiskFull
from mesh.store.high_water import HighWater
from mesh.store.log_db import LogDb, damaged

LOG_FORMAT = 1

_logger = logging.getLogger("heteroflow.log_db")
_PRAGMAS = (
    "locking_mode=EXCLUSIVE",
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=0",
    "cache_size=-1024",
)
_WAL_HEAD = 32
_WAL_FRAME_HEAD = 24
_SCHEMA = """
CREATE TABLE log(idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, kind INTEGER NOT NULL, crc INTEGER NOT NULL,
                 data BLOB NOT NULL);
CREATE TABLE hard_state(id INTEGER PRIMARY KEY CHECK(id = 0), term INTEGER NOT NULL, vote INTEGER NOT NULL,
                        committed INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose log this is. A directory that says otherwise is refused."""

    cluster_id: str
    raft_id: int


def open_log(directory: Path, identity: Identity) -> tuple[LogDb, list[Entry]]:
    """Open and verify log.db of this voter, making it on the first start. (log, its last entries in order).

    Raises LogDamaged, DirectoryRefused, DiskFull.
    """
    path, mark_path = directory / "log.db", directory / "hwm"
    witness = next((p for p in (mark_path, directory / "state.db") if p.exists() and p.stat().st_size), None)
    empty = not path.exists() or path.stat().st_size == 0
    if empty and witness is not None:
        what = "it is empty" if path.exists() else "it is missing"
        raise damaged(path, f"{what}, but {witness.name} shows that this voter has had a log")
    try:
        mark = HighWater(mark_path)
    except ValueError as error:
        raise damaged(mark_path, str(error)) from error
    connection: apsw.Connection | None = None
    try:
        connection = _connect(path)
        if empty:
            _create(connection, identity)
        _check_identity(path, connection, identity)
        _set_torn_tail_aside(path, connection)
        log = LogDb(path, connection, mark)
        tail = log.load()
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        # From here on only a clean stop may sync at the end; see LogDb.abandon.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    except BaseException as error:
        mark.close()
        if connection is not None:
            connection.close()
        raise _opening(path, error) from error
    return log, tail


def _opening(path: Path, error: BaseException) -> BaseException:
    if isinstance(error, apsw.FullError):
        return DiskFull(f"{path}: the disk is full, the log cannot be opened; free some space and start again")
    if isinstance(error, apsw.BusyError):
        return DirectoryInUse(f"{path} is open in another process; stop that one first")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError | UnicodeDecodeError):
        return damaged(path, f"it is not readable as a database ({error})")
    if isinstance(error, apsw.Error):
        return DiskFailed(f"{path}: opening failed ({error})")
    return error


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def _set_torn_tail_aside(path: Path, connection: apsw.Connection) -> None:
    """Say and keep what SQLite drops without a word: a transaction that a crash left half written, never
    acknowledged. The newest such tail is kept as log.db-torn, for whoever wants to know what it was."""
    wal = path.with_name(path.name + "-wal")
    frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    if not wal.exists() or (size := wal.stat().st_size) <= _WAL_HEAD:
        return
    page = connection.pragma("page_size")
    offset = _WAL_HEAD + max(frames, 0) * (page + _WAL_FRAME_HEAD)
    with wal.open("rb") as file:
        head = file.read(_WAL_HEAD)
        file.seek(offset)
        tail = file.read()
    # Frames of an earlier round of the same file have other salts: they are no loss.
    if tail and (len(tail) < _WAL_FRAME_HEAD or tail[8:16] == head[16:24]):
        aside = path.with_name(path.name + "-torn")
        try:
            aside.write_bytes(tail)
            kept = f"a copy is {aside}"
        except OSError as error:
            kept = f"a copy could not be kept ({error.strerror})"
        _logger.warning(
            "%s: dropped %d bytes at offset %d, the tail of an unfinished write; nothing in it was acknowledged; %s",
            wal,
            size - offset,
            offset,
            kept,
        )


def _create(connection: apsw.Connection, identity: Identity) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_SCHEMA)
    meta = {"format": str(LOG_FORMAT), "cluster_id": identity.cluster_id, "raft_id": str(identity.raft_id)}
    connection.executemany("INSERT INTO meta(name, value) VALUES(?, ?)", list(meta.items()))
    connection.execute("COMMIT")


def _check_identity(path: Path, connection: apsw.Connection, identity: Identity) -> None:
    meta = {str(name): str(value) for name, value in connection.execute("SELECT name, value FROM meta")}
    if int(meta.get("format", "0")) > LOG_FORMAT:
        raise DirectoryRefused(
            f"{path} was written by a newer version (format {meta['format']}, this one reads {LOG_FORMAT}); "
            "install that version again or a newer one"
        )
    for name, mine in (("cluster_id", identity.cluster_id), ("raft_id", str(identity.raft_id))):
        if meta.get(name) != mine:
            raise DirectoryRefused(
                f"{path} belongs to {name} {meta.get(name)!r}, not to {mine!r}; "
                "use the data directory of this voter, or an empty one to join as a new voter"
            )
