"""Bytes on the wire: msgpack with limits, and length-prefixed framing for the Unix socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgpack

from schemas.limits import WEBSOCKET_MAX

REQUEST_MAX = WEBSOCKET_MAX
ANSWER_MAX = 16 * 1024 * 1024
"""What a voter sends: all rows one index changed are one frame, and a bind of a thousand ranks changes thousands."""
_LENGTH = struct.Struct(">I")


class WireFault(Exception):
    """Raised when bytes are not what the protocol says: the session that sent them is closed."""


def pack(message: Any) -> bytes:
    return msgpack.packb(message)  # type: ignore[no-any-return]


def unpack(raw: bytes | memoryview) -> Any:
    """Raises WireFault for anything but one whole msgpack value with text keys. The carrier has limited its size."""
    try:
        # Lengths inside are bounded by the length of the whole; keys must be text.
        return msgpack.unpackb(raw)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise WireFault(f"not a msgpack message ({type(error).__name__}: {error})") from error


def framed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Cuts a byte stream into frames of at most `limit` bytes."""

    def __init__(self, limit: int = REQUEST_MAX) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now. Raises WireFault for one beyond the limit."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if length > self._limit:
                    raise WireFault(f"a frame of {length} bytes is beyond the limit of {self._limit}")
                end = at + _LENGTH.size + length
                if len(buffer) < end:
                    break
                frame = bytes(buffer[at + _LENGTH.size : end])
                at = end
                yield frame
        finally:
            del buffer[:at]
