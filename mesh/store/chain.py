"""The checksum chain of the log: each entry's crc covers the one before, so lost or reordered rows show too."""

from __future__ import annotations

import struct
import zlib

CHAIN_START = 0
_HEAD = struct.Struct(">IQQI")


def chain_crc(previous: int, index: int, term: int, kind: int, data: bytes) -> int:
    """crc32 over (previous crc, index, term, kind, data)."""
    return zlib.crc32(data, zlib.crc32(_HEAD.pack(previous, index, term, kind)))


def record_crc(*parts: object) -> int:
    """crc32 of a small record outside the chain (hard state, high-water mark)."""
    return zlib.crc32("\x1f".join(map(str, parts)).encode())
