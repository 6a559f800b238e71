"""Reads of state.db: one read-only connection on a thread of its own, each query within a deadline."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import msgpack

from mesh.core.state.lease_hold import KEY as HOLD
from mesh.store.feed import PRIVATE, Change, FeedFilter, FeedFrame
from mesh.store.row_codec import decode_row
from schemas.limits import ENTRY_MAX, WEBSOCKET_MAX

QUERY_BUDGET_S = 0.2
"""A read transaction holds the WAL back, so it may not last."""
READS_MAX = 64
LIMIT_MAX = 1_000
ANSWER_BYTES = WEBSOCKET_MAX - 2 * ENTRY_MAX
"""Of all rows of one query, give or take one: an answer beyond a session's message limit would cost its session."""
_STEPS_PER_CHECK = 2_000
SNAPSHOT_S = 60.0
"""A subscriber that takes longer over its snapshot holds the WAL back and is cut."""

RawRow = tuple[str, str, bytes]


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """more: whether another follows. All chunks of a snapshot are of one moment, `index`."""

    index: int
    rows: list[RawRow]
    more: bool


class QueryRefused(Exception):
    """Raised when a query is malformed or does not fit its budget."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StateReader:
    """One thread at a time. Never checkpoints, never writes. Made by `open_reader`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self._deadline = float("inf")
        self._room = ANSWER_BYTES
        self._db.set_progress_handler(self._overdue, _STEPS_PER_CHECK)

    def _overdue(self) -> bool:
        return time.monotonic() > self._deadline

    @contextmanager
    def _transaction(self, budget_s: float) -> Iterator[int]:
        """One snapshot of the state; yields the index it is of."""
        self._deadline = time.monotonic() + budget_s
        self._db.execute("BEGIN")
        try:
            yield self._number("SELECT idx FROM applied")
        except apsw.InterruptError as error:
            raise QueryRefused(
                "query_too_long",
                f"the query took longer than {budget_s * 1000:.0f} ms; ask for less with limit and after",
            ) from error
        finally:
            # A twin in memory writes through this connection too: its work is under no read budget.
            self._deadline = float("inf")
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def query(self, reads: Sequence[object]) -> tuple[int, list[Any]]:
        """(index, one result a read), all of one moment."""
        if not isinstance(reads, list | tuple) or not 1 <= len(reads) <= READS_MAX:
            raise QueryRefused("invalid_query", f"reads is a list of 1 to {READS_MAX} reads")
        self._room = ANSWER_BYTES
        with self._transaction(QUERY_BUDGET_S) as index:
            return index, [self._read(read) for read in reads]

    def _read(self, read: object) -> Any:
        if isinstance(read, Mapping) and len(read) == 1:
            ((kind, args),) = read.items()
            if (
                kind == "get"
                and isinstance(args, list | tuple)
                and len(args) == 2
                and all(isinstance(a, str) for a in args)
            ):
                return self._get(args[0], args[1])
            if kind == "scan" and isinstance(args, list | tuple) and 1 <= len(args) <= 4:
                return self._scan(*args)
            if kind == "groups" and isinstance(args, Mapping):
                return self._groups(dict(args))
            if kind == "owned" and isinstance(args, list | tuple) and len(args) == 2:
                return self._owned(*args)
            if kind == "count" and args == "groups":
                return self._count()
        raise QueryRefused(
            "invalid_query",
            "a read is {get: [entity, key]}, {scan: [entity, prefix, after, limit]} "
            "{groups: {status, name, limit, after, tenant}}, {owned: [tenant, group ids]} or {count: groups}",
        )

    def _get(self, entity: str, key: str) -> Any:
        for (row,) in self._db.execute("SELECT row FROM rows WHERE entity = ? AND key = ?", (entity, key)):
            return decode_row(row)
        return None

    def _scan(self, entity: object, prefix: object = "", after: object = "", limit: object = None) -> list[list[Any]]:
        """A page may be shorter than its limit where rows are large; an empty one is the end."""
        prefix, after = prefix or "", after or ""
        if not (isinstance(entity, str) and isinstance(prefix, str) and isinstance(after, str)):
            raise QueryRefused("invalid_query", "entity, prefix and after are text")
        if limit is not None:
            limit = _limit(limit)
        found: list[list[Any]] = []
        start = "key >= ?" if prefix > after or not after else "key > ?"
        for key, row in self._db.execute(
            f"SELECT key, row FROM rows WHERE entity = ? AND {start} ORDER BY key", (entity, max(prefix, after))
        ):
            if not key.startswith(prefix):
                break
            if limit is not None and len(found) >= limit:
                break
            if found and self._room < 0:
                if limit is None:
                    # Whoever sets no limit expects all: a part would pass for the whole.
                    raise QueryRefused("answer_too_large", "the rows do not fit one answer; page with limit and after")
                break
            self._room -= len(row)
            found.append([key, decode_row(row)])
        return found

    def _count(self) -> dict[str, int]:
        """Groups by status."""
        counted = self._db.execute("SELECT status, COUNT(*) FROM group_list GROUP BY status")
        return {str(status): int(str(number)) for status, number in counted}

    def _groups(self, args: dict[str, Any]) -> dict[str, Any]:
        """Newest first; next is the cursor of the following page, None at the end. Fewer than asked where large."""
        limit = _limit(args.get("limit", 100))
        where, values = _group_conditions(args)
        sql = f"SELECT group_id, submit_idx FROM group_list {where} ORDER BY submit_idx DESC, group_id LIMIT ?"
        names: list[Any] = self._db.execute(sql, (*values, limit + 1)).fetchall()
        rows: list[Any] = []
        for group_id, _ in names[:limit]:
            if rows and self._room < 0:
                break
            for (row,) in self._db.execute("SELECT row FROM rows WHERE entity = 'group' AND key = ?", (group_id,)):
                self._room -= len(row)
                rows.append(decode_row(row))
        return {"groups": rows, "next": int(names[len(rows) - 1][1]) if len(names) > len(rows) else None}

    def _owned(self, tenant: object, group_ids: object) -> list[str]:
        """Those of the ids that are groups of the tenant."""
        if (
            not isinstance(tenant, str)
            or not isinstance(group_ids, list | tuple)
            or len(group_ids) > LIMIT_MAX
            or not all(isinstance(group_id, str) for group_id in group_ids)
        ):
            raise QueryRefused("invalid_query", f"owned takes a tenant and at most {LIMIT_MAX} group ids")
        marks = ", ".join("?" * len(group_ids))
        found: list[Any] = self._db.execute(
            f"SELECT group_id FROM group_list WHERE tenant = ? AND group_id IN ({marks})", (tenant, *group_ids)
        ).fetchall()
        return [str(group_id) for (group_id,) in found]

    def snapshot(self, feed_filter: FeedFilter, chunk_bytes: int) -> Generator[SnapshotChunk, None, None]:
        """What a subscriber starts from, in pieces; at least one. The transaction lasts until the iterator ends."""
        with self._transaction(SNAPSHOT_S) as index:
            rows: list[RawRow] = []
            size = 0
            for row in self._snapshot_rows(feed_filter):
                if size > chunk_bytes:
                    yield SnapshotChunk(index, rows, True)
                    rows, size = [], 0
                rows.append(row)
                size += len(row[1]) + len(row[2]) + 32
            yield SnapshotChunk(index, rows, False)

    def _snapshot_rows(self, feed_filter: FeedFilter) -> Iterator[RawRow]:
        kind, key = feed_filter.kind, feed_filter.key
        if kind == "all":
            for row in self._rows("SELECT entity, key, row FROM rows ORDER BY entity, key"):
                if row[0] not in PRIVATE:
                    yield row
        elif kind == "active":
            for entity in ("meta", "node", "ckpt", "hold", "active"):
                yield from self._prefixed(entity, "")
            actives: list[Any] = self._db.execute("SELECT key FROM rows WHERE entity = 'active'").fetchall()
            for (group_id,) in actives:
                yield from self._one("group", group_id)
                yield from self._prefixed("task", f"{group_id}/")
        elif kind == "node":
            yield from self._node_rows(key)
        else:
            yield from self._one("group", key)
            yield from self._one("active", key)
            yield from self._prefixed("task", f"{key}/")
            yield from self._prefixed("event", f"{key}/")

    def _node_rows(self, node: str) -> Iterator[RawRow]:
        yield from self._prefixed("meta", "")
        yield from self._one("node", node)
        groups: dict[str, None] = {}
        for hold in list(self._prefixed("hold", f"{node}/")):
            yield hold
            _, group_id, attempt, rank = hold[1].split("/")
            yield from self._one("task", f"{group_id}/{attempt}/{rank}")
            groups[group_id] = None
        for group_id in groups:
            yield from self._one("group", group_id)

    def _one(self, entity: str, key: str) -> Iterator[RawRow]:
        yield from self._rows("SELECT entity, key, row FROM rows WHERE entity = ? AND key = ?", (entity, key))

    def _prefixed(self, entity: str, prefix: str) -> Iterator[RawRow]:
        for row in self._rows(
            "SELECT entity, key, row FROM rows WHERE entity = ? AND key >= ? ORDER BY key", (entity, prefix)
        ):
            if not row[1].startswith(prefix):
                break
            yield row

    def _number(self, sql: str) -> int:
        rows: list[Any] = self._db.execute(sql).fetchall()
        return int(rows[0][0])

    def _rows(self, sql: str, values: tuple[str, ...] = ()) -> Iterator[RawRow]:
        for entity, key, row in self._db.execute(sql, values):
            yield str(entity), str(key), bytes(row)

    def leases(self) -> tuple[int, list[tuple[str, str, dict[str, Any]]]]:
        """(index, `(entity, key, row)` of every node and of the mesh's hold), for the leader that takes over leases."""
        with self._transaction(5.0) as index:
            rows = [*self._one("meta", HOLD), *self._prefixed("node", "")]
            return index, [(entity, key, decode_row(row)) for entity, key, row in rows]

    def changes_after(self, index: int, max_rows: int) -> tuple[int, list[FeedFrame]] | None:
        """(index reached, whole frames after `index`), None when that part of the feed was dropped."""
        with self._transaction(5.0) as applied:
            if index + 1 < self._number("SELECT feed_from FROM applied"):
                return None
            frames: list[FeedFrame] = []
            changes: list[Change] = []
            at = 0
            found = self._db.execute(
                "SELECT idx, entity, key, row, nodes FROM changes WHERE idx > ? ORDER BY idx, ord", (index,)
            )
            for rows, (idx, entity, key, row, nodes) in enumerate(found):
                if idx != at:
                    if changes:
                        frames.append(FeedFrame(at, tuple(changes)))
                        changes = []
                    if rows >= max_rows:
                        return frames[-1].index, frames
                    at = idx
                changes.append(Change(entity, key, row, tuple(msgpack.unpackb(nodes))))
            if changes:
                frames.append(FeedFrame(at, tuple(changes)))
            return max(applied, index), frames

    def close(self) -> None:
        self._db.close()


def open_reader(path: Path) -> StateReader:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    for pragma in ("wal_autocheckpoint=0", "query_only=ON", "cache_size=-2048"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return StateReader(connection)


def _limit(raw: object) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < 1:
        raise QueryRefused("invalid_query", f"limit is a number from 1 to {LIMIT_MAX}")
    return min(raw, LIMIT_MAX)


def _group_conditions(args: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    status, name, after, tenant = (args.get(part) for part in ("status", "name", "after", "tenant"))
    if unknown := sorted(set(args) - {"status", "name", "limit", "after", "tenant"}):
        raise QueryRefused("invalid_query", f"groups does not know {', '.join(map(str, unknown))}")
    conditions: list[str] = []
    values: list[Any] = []
    if status:
        wanted = [status] if isinstance(status, str) else list(status) if isinstance(status, list | tuple) else []
        if not wanted or not all(isinstance(s, str) for s in wanted):
            raise QueryRefused("invalid_query", "status is a status or a list of them")
        conditions.append(f"status IN ({', '.join('?' * len(wanted))})")
        values.extend(wanted)
    if name:
        if not isinstance(name, str):
            raise QueryRefused("invalid_query", "name is a part of the group's name")
        conditions.append("instr(lower(name), lower(?)) > 0")
        values.append(name)
    if tenant is not None:
        if not isinstance(tenant, str):
            raise QueryRefused("invalid_query", "tenant is the name of one")
        conditions.append("tenant = ?")
        values.append(tenant)
    if after is not None:
        if not isinstance(after, int):
            raise QueryRefused("invalid_query", "after is the next of an earlier page")
        conditions.append("submit_idx < ?")
        values.append(after)
    return ("WHERE " + " AND ".join(conditions) if conditions else ""), tuple(values)
