"""Bytes on the wire: msgpack with limits, and length-prefixed framing for the Unix socket."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import msgpack

from schemas.limits import WEBSOCKET_MAX

REQUEST_MAX = WEBSOCKET_MAX
ANSWER_MAX = 16 * 1024 * 1024
"""What a voter sends: all rows one index changed are one frame, and a bind of a thousand ranks changes thousands."""
FRAMES = "heteroflow.frames"
"""The WebSocket subprotocol under which a message holds whole frames, as many as there were to send. Without it (an
older release at the other end) a message is one."""
MESSAGE_FILL = 64 * 1024
"""Frames join a message until it holds this much; a frame that is larger goes alone."""
_LENGTH = struct.Struct(">I")
PREFIX = _LENGTH.size


class WireFault(Exception):
    """Raised when bytes are not what the protocol says: the session that sent them is closed."""


def pack(message: Any) -> bytes:
    packed: bytes = msgpack.packb(message)
    return packed


def unpack(raw: bytes | memoryview) -> Any:
    """Raises WireFault for anything but one whole msgpack value with text keys. The carrier has limited its size."""
    try:
        # Lengths inside are bounded by the length of the whole; keys must be text.
        return msgpack.unpackb(raw)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise WireFault(f"not a msgpack message ({type(error).__name__}: {error})") from error


def framed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def messages(payloads: Iterable[bytes]) -> Iterator[bytes]:
    """The payloads as frames, in as few messages as MESSAGE_FILL allows."""
    parts: list[bytes] = []
    size = 0
    for payload in payloads:
        if parts and size + PREFIX + len(payload) > MESSAGE_FILL:
            yield b"".join(parts)
            parts, size = [], 0
        parts += (_LENGTH.pack(len(payload)), payload)
        size += PREFIX + len(payload)
    if parts:
        yield b"".join(parts)


def frames_of(message: bytes) -> Iterator[bytes]:
    """Raises WireFault where it does not hold whole frames and nothing else."""
    at = 0
    while at < len(message):
        start = at + PREFIX
        if start > len(message):
            raise WireFault("a message ends inside a frame's length")
        at = start + _LENGTH.unpack_from(message, at)[0]
        if at > len(message):
            raise WireFault("a message ends inside a frame")
        yield message[start:at]


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
