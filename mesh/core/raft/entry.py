"""Log entries and the hard state: what must be on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

NO_LIMIT = 1 << 62


class EntryKind(IntEnum):
    NORMAL = 0
    CONF = 1  # reserved: membership changes


@dataclass(slots=True)
class Entry:
    """One log entry. Shared between log, messages and storage, so nobody may change one after it was made."""

    index: int
    term: int
    kind: EntryKind = EntryKind.NORMAL
    data: bytes = b""


@dataclass(slots=True, frozen=True)
class HardState:
    """Term and vote must be durable before any message of the same Ready is sent; commit may be saved lazily."""

    term: int = 0
    vote: int = 0
    commit: int = 0


def entry_bytes(entry: Entry) -> int:
    """Bytes an entry is counted with against message limits: its data plus a little for the fields around it."""
    n = len(entry.data)
    return n + 8 if n else 6


def limit_size(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """The longest prefix within max_bytes, but never less than one entry: a limit must not stop replication."""
    if max_bytes >= NO_LIMIT:
        return entries
    size = 0
    for i, entry in enumerate(entries):
        size += entry_bytes(entry)
        if size > max_bytes and i:
            return entries[:i]
    return entries


def payload_bytes(entries: Sequence[Entry]) -> int:
    return sum([len(e.data) for e in entries])
