"""The two carriers of a session, Unix socket and WebSocket, behind one surface.

`send` never waits: what a carrier cannot pass on is buffered, and `pressed` says that the other side is slow.
Frames of one turn of the event loop leave in one write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol, cast

from aiohttp import ClientWebSocketResponse, WSMsgType, web

from mesh.transport.codec import ANSWER_MAX, FRAMES, REQUEST_MAX, FrameReader, WireFault, framed, frames_of, messages

BUFFER_HIGH = ANSWER_MAX + 4 * 1024 * 1024
OnFrame = Callable[[bytes], None]
OnLost = Callable[[str], None]


class Carrier(Protocol):
    def send(self, payload: bytes) -> None: ...

    def close(self, reason: str = "") -> None: ...

    async def drained(self) -> None:
        """Wait until the other side has taken most of what was sent. Raises ConnectionError when it is gone."""
        ...

    def pause(self) -> None:
        """Stop reading: the owner cannot take more."""
        ...

    def resume(self) -> None: ...

    @property
    def buffered(self) -> int:
        """Bytes sent but not yet passed on."""
        ...


class UnixCarrier(asyncio.Protocol):
    """One connection of the Unix socket, either end. limit: of one frame to receive, in bytes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int = REQUEST_MAX) -> None:
        self.on_frame: OnFrame = lambda payload: None
        self.on_lost: OnLost = lambda reason: None
        self._loop = loop
        self._frames = FrameReader(limit)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._room = asyncio.Event()
        self._room.set()
        self._fault = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=256 * 1024)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self.on_frame(frame)
        except WireFault as fault:
            self.close(str(fault))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._room.set()
        self.on_lost(self._fault or (str(exc) if exc else "the other side closed the connection"))

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def send(self, payload: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(framed(payload))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])
            if self.buffered > BUFFER_HIGH:
                self.close("the other side does not read")
                self._transport.abort()

    def close(self, reason: str = "") -> None:
        self._fault = self._fault or reason
        if self._transport is not None:
            if self._out:
                self._flush()
            self._transport.close()

    async def drained(self) -> None:
        if self._out:
            self._flush()
        await self._room.wait()
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    @property
    def buffered(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0


class WebSocketCarrier:
    """One WebSocket, either end. `run` reads until it ends.

    Where both ends know FRAMES, the frames of one turn are one message: each message costs a write, and with TLS a
    record, for which both ends pay more than for the bytes.
    """

    def __init__(self, socket: web.WebSocketResponse | ClientWebSocketResponse) -> None:
        self.on_frame: OnFrame = lambda payload: None
        self._socket = socket
        spoken = socket.ws_protocol if isinstance(socket, web.WebSocketResponse) else socket.protocol
        self._joined = spoken == FRAMES
        self._out: list[bytes] = []
        self._bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._go = asyncio.Event()
        self._go.set()
        self._closed = False
        self._fault = ""

    async def run(self) -> str:
        """Read and write until the connection ends. The reason why it ended."""
        writer = asyncio.create_task(self._write())
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    self._fault = self._fault or "only binary messages are understood"
                    break
                for frame in frames_of(message.data) if self._joined else (message.data,):
                    self.on_frame(frame)
                    await self._go.wait()
                    if self._closed:
                        break
                if self._closed:
                    break
        except WireFault as fault:
            self._fault = str(fault)
        except (ConnectionError, OSError) as error:
            self._fault = self._fault or str(error)
        finally:
            self._closed = True
            self._room.set()
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, OSError):
                await writer
            with contextlib.suppress(ConnectionError, OSError):
                await self._socket.close()
        return self._fault or "the other side closed the connection"

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            out, self._out, self._bytes = self._out, [], 0
            self._room.set()
            try:
                for message in messages(out) if self._joined else out:
                    await self._socket.send_bytes(message)
            except (ConnectionError, OSError, RuntimeError) as error:
                self.close(str(error))
                return
            if self._closed and not self._out:
                await self._socket.close()
                return

    def send(self, payload: bytes) -> None:
        if self._closed:
            return
        self._out.append(payload)
        self._bytes += len(payload)
        self._wake.set()
        if self._bytes > 256 * 1024:
            self._room.clear()
        if self._bytes > BUFFER_HIGH:
            self.close("the other side does not read")

    def close(self, reason: str = "") -> None:
        self._fault = self._fault or reason
        self._closed = True
        self._go.set()
        self._room.set()
        self._wake.set()

    async def drained(self) -> None:
        await self._room.wait()
        if self._closed:
            raise ConnectionResetError("the connection is closed")

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    @property
    def buffered(self) -> int:
        return self._bytes
