"""As much of protobuf as event files need: fields one after the other, never nested by recursion."""

from collections.abc import Iterator
from struct import Struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# A record of 64 MB can hold 32 million empty fields. Nothing real comes near this.
MAX_FIELDS = 200_000
float32 = Struct("<f").unpack_from
float64 = Struct("<d").unpack_from


class Malformed(ValueError):
    """The payload is no protobuf, although its checksum is right."""


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(unsigned 64-bit value, next position)."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise Malformed("a number is longer than ten bytes")
    raise Malformed("a number is cut off")


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """`(number, wire type, a, b)`: BYTES and FIXED stand in data[a:b], a VARINT's value is a. Raises Malformed."""
    left = MAX_FIELDS
    while at < end:
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = varint(data, at, end)
        number, wire = key >> 3, key & 7
        left -= 1
        if not number or left < 0:
            raise Malformed("a field has number 0" if not number else "a message has too many fields")
        if wire == BYTES:
            size, at = varint(data, at, end)
        elif wire == VARINT:
            value, at = varint(data, at, end)
            yield number, wire, value, at
            continue
        elif wire == FIXED32:
            size = 4
        elif wire == FIXED64:
            size = 8
        else:
            raise Malformed(f"a field has wire type {wire}")
        if size > end - at:
            raise Malformed("a field is longer than what holds it")
        yield number, wire, at, at + size
        at += size
