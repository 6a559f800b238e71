"""The rows of state.db as reducers see them: every write goes to SQLite at once, inside the batch's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from mesh.core.state.store import Row
from mesh.store.feed import Change, coalesce, nodes_of
from mesh.store.row_codec import StateHash, decode_row, encode_row

CACHE_BYTES = 4 * 1024 * 1024
CACHE_ROW_BYTES = 16 * 1024
"""Larger rows are read again each time, so that a few big documents do not push out everything else."""
_ROW_OVERHEAD = 200  # of the key, the tuple and the dict's slot

SCHEMA = """
CREATE TABLE rows(entity TEXT NOT NULL, key TEXT NOT NULL, row BLOB NOT NULL, PRIMARY KEY(entity, key)) WITHOUT ROWID;
CREATE TABLE group_list(group_id TEXT PRIMARY KEY, submit_idx INTEGER NOT NULL, status TEXT NOT NULL,
                        name TEXT NOT NULL, tenant TEXT) WITHOUT ROWID;
CREATE INDEX group_list_newest ON group_list(submit_idx DESC);
"""
TENANT_INDEX = "CREATE INDEX IF NOT EXISTS group_list_tenant ON group_list(tenant, submit_idx DESC)"
_MISSING = object()
_OWN_ROW = ("group", "task")  # kinds whose hosts stand in the row, not in the key


class RowTable:
    """A StateStore. The caller opens the transaction; after a failed one it calls `forget`."""

    def __init__(self, connection: apsw.Connection, state_hash: StateHash) -> None:
        self._db = connection
        self._hash = state_hash
        self._cache: dict[tuple[str, str], bytes | None] = {}
        self._cached_bytes = 0
        self._changes: list[Change] = []
        self._undo: list[tuple[str, str, bytes | None]] = []

    def get(self, entity: str, key: str) -> Row | None:
        raw = self._raw(entity, key)
        return decode_row(raw) if raw is not None else None

    def put(self, entity: str, key: str, row: Row) -> None:
        self._write(entity, key, encode_row(row), row)

    def delete(self, entity: str, key: str) -> None:
        self._write(entity, key, None, None)

    def scan(
        self, entity: str, prefix: str = "", after: str = "", limit: int | None = None
    ) -> Iterator[tuple[str, Row]]:
        found: list[tuple[str, Row]] = []
        start = "key >= ?" if prefix > after or not after else "key > ?"
        for key, raw in self._db.execute(
            f"SELECT key, row FROM rows WHERE entity = ? AND {start} ORDER BY key", (entity, max(prefix, after))
        ):
            if not key.startswith(prefix) or (limit is not None and len(found) >= limit):
                break
            found.append((key, decode_row(raw)))
        return iter(found)

    def take_changes(self) -> tuple[Change, ...]:
        """The changes since the last call: with one call per log index, one feed frame."""
        changes, self._changes = self._changes, []
        self._undo = []
        return coalesce(changes)

    def undo_changes(self) -> None:
        """Take back every write since the last `take_changes`."""
        undo, self._undo, self._changes = self._undo, [], []
        for entity, key, old in reversed(undo):
            self._store(entity, key, self._raw(entity, key), old, decode_row(old) if old is not None else None)

    def forget(self) -> None:
        """The transaction was rolled back: what was read or written in it is not so."""
        self._cache.clear()
        self._cached_bytes = 0
        self._changes, self._undo = [], []

    def _raw(self, entity: str, key: str) -> bytes | None:
        name = (entity, key)
        raw = self._cache.get(name, _MISSING)
        if raw is _MISSING:
            found = self._db.execute("SELECT row FROM rows WHERE entity = ? AND key = ?", name).fetchone()
            raw = bytes(found[0]) if found is not None else None
            self._keep(name, raw)
        # The mark for `not kept` was replaced above, which mypy does not follow through an object().
        return raw  # type: ignore[return-value]

    def _write(self, entity: str, key: str, new: bytes | None, row: Row | None) -> None:
        old = self._raw(entity, key)
        if old == new:
            if new is not None:
                self._changes.append(Change(entity, key, new, self._nodes(entity, key, None, row)))
            return
        self._undo.append((entity, key, old))
        self._store(entity, key, old, new, row)
        self._changes.append(Change(entity, key, new, self._nodes(entity, key, old, row)))

    def _nodes(self, entity: str, key: str, old: bytes | None, row: Row | None) -> tuple[str, ...]:
        before = decode_row(old) if old is not None and entity in _OWN_ROW else None
        return nodes_of(entity, key, before, row)

    def _store(self, entity: str, key: str, old: bytes | None, new: bytes | None, row: Row | None) -> None:
        name = (entity, key)
        if new is None:
            self._db.execute("DELETE FROM rows WHERE entity = ? AND key = ?", name)
        else:
            self._db.execute("INSERT OR REPLACE INTO rows(entity, key, row) VALUES(?, ?, ?)", (entity, key, new))
        if entity == "group":
            self._list_group(key, row)
        self._hash.replace(entity, key, old, new)
        self._keep(name, new)

    def _list_group(self, group_id: str, row: Row | None) -> None:
        if row is None:
            self._db.execute("DELETE FROM group_list WHERE group_id = ?", (group_id,))
        else:
            self._db.execute(
                "INSERT OR REPLACE INTO group_list(group_id, submit_idx, status, name, tenant) VALUES(?, ?, ?, ?, ?)",
                (
                    group_id,
                    int(row.get("submit_idx") or 0),
                    str(row.get("status")),
                    str(row.get("name")),
                    str(row.get("tenant")),
                ),
            )

    def _keep(self, name: tuple[str, str], raw: bytes | None) -> None:
        cache = self._cache
        if name in cache:
            self._cached_bytes -= _size(cache.pop(name))
        if raw is not None and len(raw) > CACHE_ROW_BYTES:
            return
        cache[name] = raw
        self._cached_bytes += _size(raw)
        if self._cached_bytes > CACHE_BYTES:
            for old in list(cache)[: len(cache) // 4]:
                self._cached_bytes -= _size(cache.pop(old))


def know_tenants(connection: apsw.Connection) -> None:
    """Of groups that a version without the column has listed, also one that ran again in between."""
    columns = {str(row[1]) for row in connection.execute("PRAGMA table_info(group_list)")}
    if "tenant" not in columns:
        connection.execute("ALTER TABLE group_list ADD COLUMN tenant TEXT")
    connection.execute(TENANT_INDEX)
    unknown: list[Any] = connection.execute("SELECT group_id FROM group_list WHERE tenant IS NULL").fetchall()
    for (group_id,) in unknown:
        for (raw,) in connection.execute("SELECT row FROM rows WHERE entity = 'group' AND key = ?", (group_id,)):
            tenant = str(decode_row(bytes(raw)).get("tenant"))
            connection.execute("UPDATE group_list SET tenant = ? WHERE group_id = ?", (tenant, group_id))


def _size(raw: bytes | None) -> int:
    return _ROW_OVERHEAD + (len(raw) if raw is not None else 0)
