"""The replicated state of one voter: the product's reducers over rows kept as canonical bytes, with the change feed."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

import msgpack

from mesh.core.raft import Entry
from mesh.core.state.outcome import Outcome
from mesh.core.state.reducer import apply
from mesh.core.state.store import Row
from mesh.store.feed import Change, FeedFrame, coalesce, nodes_of
from mesh.store.row_codec import StateHash, decode_row, encode_row


class ByteStore:
    """A StateStore whose rows are bytes: equal states have equal hashes, and a copy is cheap."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, bytes]] = {}
        self.keys: dict[str, list[str]] = {}
        self.hash = StateHash()
        self._changes: list[Change] = []

    def get(self, entity: str, key: str) -> Row | None:
        raw = self.rows.get(entity, {}).get(key)
        return None if raw is None else decode_row(raw)

    def put(self, entity: str, key: str, row: Row) -> None:
        self._write(entity, key, row)

    def delete(self, entity: str, key: str) -> None:
        if key in self.rows.get(entity, {}):
            self._write(entity, key, None)

    def _write(self, entity: str, key: str, row: Row | None) -> None:
        rows = self.rows.setdefault(entity, {})
        keys = self.keys.setdefault(entity, [])
        old, new = rows.get(key), None if row is None else encode_row(row)
        if new is None:
            del rows[key]
            del keys[bisect_left(keys, key)]
        else:
            rows[key] = new
            if old is None:
                insort(keys, key)
        self.hash.replace(entity, key, old, new)
        before = decode_row(old) if old is not None and entity in ("task", "group") else None
        self._changes.append(Change(entity, key, new, nodes_of(entity, key, before, row)))

    def scan(
        self, entity: str, prefix: str = "", after: str = "", limit: int | None = None
    ) -> Iterator[tuple[str, Row]]:
        keys, rows = self.keys.get(entity, []), self.rows.get(entity, {})
        at = bisect_left(keys, prefix) if prefix > after else bisect_right(keys, after) if after else 0
        found: list[tuple[str, Row]] = []
        while at < len(keys) and keys[at].startswith(prefix) and (limit is None or len(found) < limit):
            found.append((keys[at], decode_row(rows[keys[at]])))
            at += 1
        return iter(found)

    def take_changes(self) -> tuple[Change, ...]:
        changes, self._changes = self._changes, []
        return coalesce(changes)

    def copy(self) -> "ByteStore":
        other = ByteStore()
        other.rows = {entity: dict(rows) for entity, rows in self.rows.items()}
        other.keys = {entity: list(keys) for entity, keys in self.keys.items()}
        other.hash = StateHash(self.hash.value)
        return other


class StateMachine:
    """state.db: every applied entry survives a killed process; a power loss goes back to the last synced point."""

    def __init__(self) -> None:
        self.index = self.term = self.stamp_ms = 0
        self.store = ByteStore()
        self.frames: list[FeedFrame] = []
        self.last_command: Row = {}
        self._synced = (0, 0, 0, ByteStore())

    def apply(self, entry: Entry) -> tuple[Outcome | None, FeedFrame | None]:
        self.index, self.term = entry.index, entry.term
        self.last_command = {}
        if not entry.data:
            return None, None
        command = self.last_command = msgpack.unpackb(entry.data)
        outcome = apply(self.store, entry.index, command)
        self.stamp_ms = max(self.stamp_ms, int(command.get("at_ms") or 0))
        changes = self.store.take_changes()
        if not changes:
            return outcome, None
        frame = FeedFrame(entry.index, changes)
        self.frames.append(frame)
        return outcome, frame

    def sync(self) -> None:
        self._synced = (self.index, self.term, self.stamp_ms, self.store.copy())

    def power_loss(self) -> None:
        self.index, self.term, self.stamp_ms, kept = self._synced
        self.store = kept.copy()
        while self.frames and self.frames[-1].index > self.index:
            self.frames.pop()

    def frames_after(self, index: int) -> list[FeedFrame]:
        at = len(self.frames)
        while at and self.frames[at - 1].index > index:
            at -= 1
        return self.frames[at:]
