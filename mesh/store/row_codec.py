"""Rows as bytes: canonical msgpack, so that equal rows have equal bytes and the state hash can compare voters."""

from __future__ import annotations

import hashlib
from typing import Any

import msgpack

from mesh.core.state.store import Row

HASH_BITS = 128
_HASH_MASK = (1 << HASH_BITS) - 1


def encode_row(row: Row) -> bytes:
    """Keys sorted at every level: a reducer may build the same row in another order in the next version."""
    packed: bytes = msgpack.packb(_sorted(row))
    return packed


def decode_row(raw: bytes) -> Row:
    row: Row = msgpack.unpackb(raw)
    return row


def _sorted(value: Any) -> Any:
    if type(value) is dict:
        return {key: _sorted(value[key]) for key in sorted(value)}
    if type(value) is list or type(value) is tuple:
        return [_sorted(item) for item in value]
    return value


class StateHash:
    """Sum of the rows' hashes: updated per write, independent of the order of writes, equal for equal state."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def replace(self, entity: str, key: str, old: bytes | None, new: bytes | None) -> None:
        value = self.value
        if old is not None:
            value -= _row_hash(entity, key, old)
        if new is not None:
            value += _row_hash(entity, key, new)
        self.value = value & _HASH_MASK

    def hex(self) -> str:
        return f"{self.value:032x}"


def _row_hash(entity: str, key: str, row: bytes) -> int:
    head = f"{entity}\x00{key}\x00".encode()
    return int.from_bytes(hashlib.blake2b(head + row, digest_size=HASH_BITS // 8).digest(), "big")
