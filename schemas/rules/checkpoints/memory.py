"""The in-memory twin of a fenced directory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from schemas.rules.checkpoints.view import Kind, Stat, Unreadable


@dataclass(slots=True)
class MemoryFile:
    """kind: what it would be on a disk; anything but "file" cannot be read."""

    data: bytes = b""
    mtime_ns: int = 0
    kind: Kind = "file"


@dataclass(slots=True)
class MemoryDirectory:
    entries: "dict[str, MemoryFile | MemoryDirectory]" = field(default_factory=dict)
    cut: bool = False
    memo: dict[str, Any] = field(default_factory=dict, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def names(self) -> Mapping[str, Kind]:
        return {
            name: "directory" if isinstance(entry, MemoryDirectory) else entry.kind
            for name, entry in self.entries.items()
        }

    def stat(self, name: str) -> Stat:
        entry = self._entry(name)
        if isinstance(entry, MemoryDirectory):
            return Stat("directory", 0, 0)
        return Stat(entry.kind, len(entry.data), entry.mtime_ns)

    def read(self, name: str, at: int, length: int) -> bytes:
        entry = self._entry(name)
        if isinstance(entry, MemoryDirectory) or entry.kind != "file":
            raise Unreadable(f"{name} is no regular file")
        start = at if at >= 0 else max(0, len(entry.data) + at)
        return entry.data[start : start + length]

    def open(self, name: str) -> "MemoryDirectory":
        entry = self._entry(name)
        if not isinstance(entry, MemoryDirectory):
            raise Unreadable(f"{name} is no directory")
        entry.memo = self.memo
        return entry

    def _entry(self, name: str) -> "MemoryFile | MemoryDirectory":
        if name not in self.entries:
            raise Unreadable(f"{name} is missing")
        return self.entries[name]
