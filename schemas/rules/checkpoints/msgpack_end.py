"""Whether a file of msgpack is whole, by its structure: what it holds is passed over, and nothing is unpacked."""

import struct
from collections.abc import Mapping

from schemas.rules.checkpoints.names import shown
from schemas.rules.checkpoints.view import Directory, Incomplete

# A state of flax has two for each array and each of its names. More are not somebody's parameters.
ITEMS_MAX = 200_000
_WINDOW = 64 << 10
_HEAD_MAX = 6
# First byte -> (bytes of the length that follows it, bytes that come with it in any case).
_SIZED: Mapping[int, tuple[int, int]] = {
    0xC4: (1, 0),
    0xC5: (2, 0),
    0xC6: (4, 0),
    0xC7: (1, 1),
    0xC8: (2, 1),
    0xC9: (4, 1),
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}
_FIXED: Mapping[int, int] = {
    0xC0: 0,
    0xC2: 0,
    0xC3: 0,
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}
# (bytes of the count that follows, items for each).
_NESTED: Mapping[int, tuple[int, int]] = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_UINT: Mapping[int, str] = {1: ">B", 2: ">H", 4: ">I"}


def require_msgpack(directory: Directory, name: str, size: int) -> None:
    """One map that ends where the file does. Raises Incomplete."""
    first = directory.read(name, 0, 1)[0]
    if not (0x80 <= first <= 0x8F or first in (0xDE, 0xDF)):
        raise Incomplete(f"{shown(name)} is a file, and no state of flax (a map of msgpack)")
    at, left, window, begins = 0, 1, b"", 0
    for _ in range(ITEMS_MAX):
        if left == 0:
            break
        if at + _HEAD_MAX > begins + len(window) and begins + len(window) < size:
            begins, window = at, directory.read(name, at, _WINDOW)
        length, inside = _item(window[at - begins : at - begins + _HEAD_MAX])
        at, left = at + length, left - 1 + inside
        if not length or at > size:
            raise Incomplete(f"{shown(name)} is cut short or damaged: its msgpack does not end within {size} bytes")
    if left:
        raise Incomplete(f"{shown(name)} holds more than {ITEMS_MAX} items: they are not looked through")
    if at != size:
        raise Incomplete(f"{shown(name)} is damaged: its msgpack ends at {at} of {size} bytes")


def _item(head: bytes) -> tuple[int, int]:
    """(length without what is nested in it, nested items); no length where `head` is no item, or only its beginning."""
    first = head[0] if head else 0xC1
    if first < 0x80 or first >= 0xE0:
        return 1, 0
    if first < 0x90:
        return 1, 2 * (first & 15)
    if first < 0xA0:
        return 1, first & 15
    if first < 0xC0:
        return 1 + (first & 31), 0
    if first in _FIXED:
        return 1 + _FIXED[first], 0
    width, more = _SIZED.get(first) or _NESTED.get(first) or (0, 0)
    if not width or len(head) < 1 + width:
        return 0, 0
    (count,) = struct.unpack_from(_UINT[width], head, 1)
    return (1 + width, count * more) if first in _NESTED else (1 + width + more + count, 0)
