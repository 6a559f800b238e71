"""The `hwm` file: up to where this voter has acknowledged entries, kept apart from the log.

SQLite drops a damaged WAL tail without a word. When the log then ends before this mark, acknowledged entries are
gone and the voter must not vote. The mark is synced lazily (each second and on a clean stop), so it may be behind
the log, never ahead of it: it is lowered, durably, before entries are replaced.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from mesh.store.chain import record_crc

_RECORD = struct.Struct(">4sQQI")
_MAGIC = b"HWM1"


class HighWater:
    """The mark of one open log. Raises ValueError when the file is not a mark."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            _create(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.index, self.term = _decode(os.pread(self._fd, _RECORD.size + 1, 0))
        except ValueError:
            os.close(self._fd)
            raise

    def write(self, index: int, term: int) -> None:
        """Move the mark and sync it."""
        os.pwrite(self._fd, _encode(index, term), 0)
        os.fdatasync(self._fd)
        self.index, self.term = index, term

    def close(self) -> None:
        os.close(self._fd)


def _create(path: Path) -> None:
    """Whole or not at all: an empty mark would read as damage after a power cut."""
    draft = path.with_name(path.name + ".new")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, _encode(0, 0))
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(draft, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _encode(index: int, term: int) -> bytes:
    return _RECORD.pack(_MAGIC, index, term, record_crc(index, term))


def _decode(raw: bytes) -> tuple[int, int]:
    if len(raw) != _RECORD.size:
        raise ValueError(f"the file has {len(raw)} bytes instead of {_RECORD.size}")
    magic, index, term, crc = _RECORD.unpack(raw)
    if magic != _MAGIC or crc != record_crc(index, term):
        raise ValueError("the checksum does not fit")
    return index, term
