"""TensorBoard event files, written and read without TensorBoard.

A record is `u64 length, u32 masked crc32c(length), bytes, u32 masked crc32c(bytes)`, all little-endian;
the bytes are a protobuf `Event`: 1 double wall_time, 2 int64 step, 3 string file_version, 5 Summary, 7 SessionLog.
"""

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CRC32C_POLYNOMIAL = 0x82F63B78
MASK_DELTA = 0xA282EAD8
SESSION_START = 1
MAX_RECORD_BYTES = 64 * 2**20
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(data)) + data


def _event(wall_time: float, step: int, body: bytes) -> bytes:
    return _varint(1 << 3 | FIXED64) + struct.pack("<d", wall_time) + _varint(2 << 3 | VARINT) + _varint(step) + body


def _scalar(tag: str, value: float) -> bytes:
    return _bytes_field(1, _bytes_field(1, tag.encode()) + _varint(2 << 3 | FIXED32) + struct.pack("<f", value))


def frame(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return b"".join(
        (length, struct.pack("<I", masked_crc32c(length)), record, struct.pack("<I", masked_crc32c(record)))
    )


class EventFile:
    """One file per run of the trainer. A resumed run starts a file of its own and says from which step, so that
    readers drop the steps which the lost run had written after its last checkpoint."""

    def __init__(self, directory: Path, resumed_after_step: int | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.0"
        self._file = (directory / name).open("ab", buffering=0)
        self._file.write(frame(_event(now, 0, _bytes_field(3, b"brain.Event:2"))))
        if resumed_after_step is not None:
            start = _varint(1 << 3 | VARINT) + _varint(SESSION_START)
            self._file.write(frame(_event(now, resumed_after_step + 1, _bytes_field(7, start))))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One record in one write: a reader sees all values of a step or none."""
        summary = b"".join(_scalar(tag, value) for tag, value in values.items())
        self._file.write(frame(_event(time.time(), step, _bytes_field(5, summary))))

    def close(self) -> None:
        self._file.close()


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        wire = key & 7
        if wire == VARINT:
            value, at = _read_varint(data, at)
            yield key >> 3, value
            continue
        if wire == BYTES:
            size, at = _read_varint(data, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}[wire]
        yield key >> 3, data[at : at + size]
        at += size


def _records(data: bytes) -> Iterator[bytes]:
    """Whole records with right checksums; stops at a torn tail or at damage."""
    at = 0
    while at + 16 <= len(data):
        head = data[at : at + 8]
        (length,) = struct.unpack("<Q", head)
        (head_crc,) = struct.unpack("<I", data[at + 8 : at + 12])
        end = at + 16 + length
        if head_crc != masked_crc32c(head) or length > MAX_RECORD_BYTES or end > len(data):
            return
        record = data[at + 12 : at + 12 + length]
        if struct.unpack("<I", data[end - 4 : end])[0] != masked_crc32c(record):
            return
        yield record
        at = end


def _scalars_of(event: bytes) -> Iterator[tuple[str, int, float]]:
    step, summaries = 0, []
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for _, item in _fields(summary):
            fields = dict(_fields(item)) if isinstance(item, bytes) else {}
            tag, simple = fields.get(1), fields.get(2)
            if isinstance(tag, bytes) and isinstance(simple, bytes) and len(simple) == 4:
                yield tag.decode("utf-8", "replace"), step, struct.unpack("<f", simple)[0]


def read_scalars(directory: Path) -> dict[str, dict[int, float]]:
    """`{tag: {step: value}}` of all event files of a directory; a step written twice keeps the later file's value."""
    curves: dict[str, dict[int, float]] = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for record in _records(path.read_bytes()):
            for tag, step, value in _scalars_of(record):
                curves.setdefault(tag, {})[step] = value
    return {tag: dict(sorted(points.items())) for tag, points in curves.items()}
