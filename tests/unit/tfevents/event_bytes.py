"""Event files as writers make them, encoded here independently of the reader."""

import struct

import google_crc32c

from schemas.rules.tfevents.curve import Curve
from schemas.rules.tfevents.run import Run
from schemas.rules.tfevents.scan import FileScan

SCALARS = b"scalars"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def event(body: bytes = b"", step: int = 0, wall: float = 1.7e9) -> bytes:
    return b"\x09" + struct.pack("<d", wall) + (number(2, step) if step else b"") + body


def simple(tag: str | bytes, value: float) -> bytes:
    name = tag.encode() if isinstance(tag, str) else tag
    return field(1, field(1, name) + b"\x15" + struct.pack("<f", value))


def metadata(plugin: bytes) -> bytes:
    return field(9, field(1, field(1, plugin)))


def tensor(tag: str, proto: bytes, plugin: bytes | None = SCALARS) -> bytes:
    return field(1, field(1, tag.encode()) + field(8, proto) + (metadata(plugin) if plugin is not None else b""))


def summary(*values: bytes) -> bytes:
    return field(5, b"".join(values))


def scalar(tag: str | bytes, step: int, value: float, wall: float = 1.7e9) -> bytes:
    return frame(event(summary(simple(tag, value)), step, wall))


def version(wall: float = 1.7e9) -> bytes:
    return frame(event(field(3, b"brain.Event:2"), 0, wall))


def start(step: int, wall: float) -> bytes:
    return frame(event(field(7, number(1, 1)), step, wall))


def scan_of(data: bytes, name: str = "events.out.tfevents.1.h.1.0", run: Run | None = None) -> FileScan:
    scan = (run or Run()).open(name)
    scan.feed(data)
    return scan


def run_of(**files: bytes) -> Run:
    """files: `_SECONDS=bytes`."""
    run = Run()
    for name, data in files.items():
        run.open(f"events.out.tfevents.{name[1:]}.host.1.0").feed(data)
    return run


def pairs(curve: Curve) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in curve.points()]
