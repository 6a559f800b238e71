"""Layout of a task's log: segments of frames. Shared by the shim that writes and the agent that reads.

A logical offset counts the bytes of frames since the task began and names a position for ever; a segment file is named
by the offset of its first frame, so what rotation dropped is the name of the oldest file. Standard library only.
"""

import struct
from binascii import crc32
from collections.abc import Iterator
from typing import NamedTuple

PLATFORM, OUT, ERR = 0, 1, 2
# The frame begins in the middle of a line of its stream.
CONTINUES = 1
# What its stream wrote before it could not be kept: a line left open earlier ends there, unfinished.
AFTER_LOSS = 2
MAX_PAYLOAD = 64 << 10

FRAME = struct.Struct("<IBBHQ")
FRAME_BYTES = FRAME.size
_SEGMENT = struct.Struct("<4sIQQI")
_MAGIC = b"HFLG"
_VERSION = 1
# Rounded up, so that the frames of a hex dump line up.
SEGMENT_BYTES = 32
SUFFIX = ".log"
_LF = 10


class Frame(NamedTuple):
    """offset: of the frame's first byte; the payload begins FRAME_BYTES later."""

    offset: int
    stream: int
    flags: int
    at_ns: int
    payload: bytes

    @property
    def end(self) -> int:
        return self.offset + FRAME_BYTES + len(self.payload)


class Segment(NamedTuple):
    """open_from: where the oldest line unfinished at the segment's beginning began; `base` if there is none."""

    base: int
    open_from: int


class Skimmed(NamedTuple):
    """A frame by its header. continues: begins inside a line whose head is in an earlier frame; lines: that end in it;
    closed: no line of its stream is left open behind it."""

    offset: int
    end: int
    stream: int
    continues: bool
    lines: int
    closed: bool


def segment_name(base: int) -> str:
    return f"{base:020d}{SUFFIX}"


def segment_base(name: str) -> int | None:
    digits = name.removesuffix(SUFFIX)
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() and name != digits else None


def pack_segment(segment: Segment) -> bytes:
    body = _SEGMENT.pack(_MAGIC, _VERSION, segment.base, segment.open_from, 0)[:-4]
    return (body + struct.pack("<I", crc32(body))).ljust(SEGMENT_BYTES, b"\0")


def unpack_segment(data: bytes) -> Segment | None:
    if len(data) < SEGMENT_BYTES:
        return None
    magic, version, base, open_from, crc = _SEGMENT.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or crc != crc32(data[: _SEGMENT.size - 4]):
        return None
    return Segment(base, open_from)


def pack_frame(stream: int, flags: int, at_ns: int, payload: bytes) -> bytes:
    bare = FRAME.pack(len(payload), stream, flags, 0, at_ns)
    return FRAME.pack(len(payload), stream, flags, _checksum(bare, payload), at_ns) + payload


def unpack_frame(data: bytes, at: int, offset: int) -> Frame | None:
    """The frame at `data[at:]`; None where it is not there in full. Raises ValueError where it is damaged."""
    if len(data) - at < FRAME_BYTES:
        return None
    length, stream, flags, crc, at_ns = FRAME.unpack_from(data, at)
    if length > MAX_PAYLOAD:
        raise ValueError(f"frame at {offset} claims {length} bytes")
    start = at + FRAME_BYTES
    payload = data[start : start + length]
    if len(payload) < length:
        return None
    if crc != _checksum(FRAME.pack(length, stream, flags, 0, at_ns), payload):
        raise ValueError(f"frame at {offset} has a wrong checksum")
    return Frame(offset, stream, flags, at_ns, payload)


def skim_frames(data: bytes, offset: int) -> Iterator[Skimmed]:
    """The whole frames of `data`, which begins with the frame at `offset`. Checksums are not looked at; ends where a
    header makes no sense."""
    at = 0
    while len(data) - at >= FRAME_BYTES:
        length, stream, flags, _, _ = FRAME.unpack_from(data, at)
        start = at + FRAME_BYTES
        end = start + length
        if length > MAX_PAYLOAD or stream > ERR or end > len(data):
            return
        lines = 1 if stream == PLATFORM else data.count(b"\n", start, end)
        closed = stream == PLATFORM or data[end - 1] == _LF
        continues = flags & (CONTINUES | AFTER_LOSS) == CONTINUES
        yield Skimmed(offset + at, offset + end, stream, continues, lines, closed)
        at = end


def _checksum(bare: bytes, payload: bytes) -> int:
    return crc32(payload, crc32(bare)) & 0xFFFF
