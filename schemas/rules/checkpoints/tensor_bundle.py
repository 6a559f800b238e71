"""The index of a TensorFlow checkpoint: a sorted table whose entries say where each tensor lies in the data files.

Source: tensorflow/core/util/tensor_bundle (BundleHeaderProto, BundleEntryProto) over leveldb's tables, uncompressed.
"""

from collections.abc import Iterator

from schemas.rules.checkpoints.view import Incomplete

INDEX_MAX = 64 << 20
_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER = 48
_ENTRIES_MAX = 1_000_000


def data_ends(index: bytes) -> list[int]:
    """Shard number -> bytes that its data file must have at least. Raises Incomplete: cut short or damaged."""
    try:
        return _data_ends(index)
    except (IndexError, ValueError) as error:
        raise Incomplete("the index is damaged") from error


def _data_ends(index: bytes) -> list[int]:
    if len(index) < _FOOTER or index[-8:] != _MAGIC:
        raise Incomplete("the index is cut short")
    footer = index[-_FOOTER:]
    _, _, at = _handle(footer, 0)
    offset, size, _ = _handle(footer, at)
    ends: dict[int, int] = {}
    shards = 0
    for _, handle in _entries(index, offset, size):
        block, length, _ = _handle(handle, 0)
        for key, value in _entries(index, block, length):
            facts = dict(_fields(value))
            if key == b"":
                shards = facts.get(1, 1)
            else:
                shard = facts.get(3, 0)
                ends[shard] = max(ends.get(shard, 0), facts.get(4, 0) + facts.get(5, 0))
    if not 1 <= shards <= 100_000 or any(shard >= shards for shard in ends):
        raise ValueError("shards")
    return [ends.get(shard, 0) for shard in range(shards)]


def _entries(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of a block. Keys share a prefix with the one before."""
    block = table[offset : offset + size]
    if len(block) < size or size < 4 or table[offset + size : offset + size + 1] != b"\0":
        raise ValueError("block")
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    at, key = 0, b""
    for _ in range(_ENTRIES_MAX):
        if at >= end:
            return
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + own + length > end:
            raise ValueError("entry")
        key = key[:shared] + block[at : at + own]
        at += own + length
        yield key, block[at - length : at]
    raise ValueError("entries")


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("varint")


def _fields(message: bytes) -> Iterator[tuple[int, int]]:
    """The whole-number fields of a protocol buffer; others are passed over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif kind == 2:
            length, at = _varint(message, at)
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("field")
