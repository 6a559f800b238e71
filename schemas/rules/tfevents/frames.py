"""Records: `u64 length, u32 crc of the length, payload, u32 crc of the payload`, little-endian, crcs masked."""

from dataclasses import dataclass
from struct import Struct

from google_crc32c import value as crc32c

# A record beyond this is not a scalar anyone logs; the length is judged before anything of that size is allocated.
MAX_RECORD_BYTES = 64 * 2**20
HEAD_BYTES = 12
FRAME_BYTES = 16
MASK_DELTA = 0xA282EAD8
_HEAD = Struct("<QI")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The file cannot be read after byte `offset`: nothing behind it says where the next record begins."""

    offset: int
    why: str


def masked_crc32c(data: bytes) -> int:
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def record_length(head: bytes, offset: int) -> int | Unreadable:
    """Payload bytes of the record whose 12 header bytes these are."""
    length, stored = _HEAD.unpack(head)
    if stored != masked_crc32c(head[:8]):
        return Unreadable(offset, "the checksum of a record's length is wrong")
    if length > MAX_RECORD_BYTES:
        return Unreadable(offset, f"a record claims {length} bytes, more than the {MAX_RECORD_BYTES} a record may have")
    return int(length)
