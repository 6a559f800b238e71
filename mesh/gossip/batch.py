"""What one POST carries, and its answer: `[1, [packet...]]` in msgpack, each packet as bytes of the core's codec."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from mesh.core.swim import Oversized, Truncated, WireError
from mesh.core.swim.limits import PACKET_MAX, SYNC_MAX

PATH = "/mesh/v1/gossip"
VERSION = 1
PACKETS_MAX = 64
BODY_MAX = SYNC_MAX + PACKETS_MAX * PACKET_MAX
"""Bytes: one full state and as many small packets as fit; below aiohttp's limit for a body."""
_FRAME = 16  # the marks around the packets, and the one before each


def size(packet: bytes) -> int:
    """Of a packet inside a body."""
    return len(packet) + _FRAME


def pack(packets: Sequence[bytes]) -> bytes:
    packed: bytes = msgpack.packb([VERSION, list(packets)])
    return packed


def unpack(body: bytes) -> list[bytes]:
    """Raises WireError."""
    if len(body) > BODY_MAX:
        raise Oversized(f"{len(body)} bytes; at most {BODY_MAX} are taken")
    try:
        raw = msgpack.unpackb(
            body, max_array_len=PACKETS_MAX, max_bin_len=SYNC_MAX, max_str_len=0, max_map_len=0, max_ext_len=0
        )
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        if "incomplete input" in str(error):
            raise Truncated(f"the body is cut off after {len(body)} bytes") from error
        raise WireError(f"the body is not msgpack within limits ({type(error).__name__})") from error
    if type(raw) is not list or len(raw) != 2 or type(raw[0]) is not int or raw[0] != VERSION:
        raise WireError("the body is not [1, packets]")
    packets = raw[1]
    if type(packets) is not list or not all(type(packet) is bytes for packet in packets):
        raise WireError("packets are a list of bytes")
    return packets
