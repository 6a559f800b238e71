"""This terminal, or these pipes, at the two ends of a program beside a rank."""

import asyncio
import codecs
import contextlib
import os
import signal
import stat
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import WSMsgType

from console.core.exit_codes import NO_NODE, of_status
from console.core.sanitize import sanitize
from schemas.errors import HeteroFlowError, Problem
from schemas.exec_frames import STDERR, STDIN, ExecRequest, data_frame, read_control, split_frame
from schemas.limits import EXEC_READ_BYTES

if TYPE_CHECKING:
    from console.cli.terminal import Terminal
    from console.client import MeshClient

# Out of the other screen, cursor shown, no mouse and no marked pastes: what a program that was cut off may have left.
_LEFT_BEHIND = b"\x1b[?1049l\x1b[?25h\x1b[0m\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\r\n"


async def run_session(client: "MeshClient", terminal: "Terminal", path: str, rank: int, asked: ExecRequest) -> int:
    """The program's exit code; 128 + n after signal n. Raises Refused, NoNodeAnswers."""
    socket, node = await client.websocket(path, {"rank": str(rank)})
    ending: dict[str, Any] = {}
    try:
        await socket.send_json(asked.to_dict())
        first = await socket.receive()
        ending = read_control(first.data) if first.type is WSMsgType.TEXT else {}
        if "started" in ending:
            with _raw_terminal() if asked.tty and os.isatty(0) else contextlib.nullcontext():
                ending = await _Streams(socket, asked).run()
                if asked.tty and not ending.keys() & {"exit_code"} and os.isatty(1):
                    _write(1, _LEFT_BEHIND)
    finally:
        await socket.close()
    if "exit_code" in ending:
        return int(ending["exit_code"])
    if "signal" in ending:
        return 128 + int(ending["signal"])
    if "problem" in ending:
        problem = Problem.from_dict(ending["problem"])
        terminal.problem(problem, node)
        return of_status(problem.status)
    text = "the connection was cut; the program was told to end"
    terminal.problem(Problem("cut_off", text, "open the session again", status=503), node)
    return NO_NODE


class _Streams:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse, asked: ExecRequest) -> None:
        self._socket, self._tty = socket, asked.tty
        self._loop = asyncio.get_running_loop()
        # On pipes the text of a program does not drive this terminal; on a terminal of its own that is the purpose.
        self._decoders = {
            fd: codecs.getincrementaldecoder("utf-8")("replace") for fd in (1, 2) if not asked.tty and os.isatty(fd)
        }

    async def run(self) -> dict[str, Any]:
        """The last frame; empty where the connection was cut."""
        resized = asyncio.Event()
        parts = [asyncio.create_task(self._input())]
        if self._tty and os.isatty(0):
            self._loop.add_signal_handler(signal.SIGWINCH, resized.set)
            parts.append(asyncio.create_task(self._sizes(resized)))
        output = asyncio.create_task(self._output())
        told: list[int] = []

        def end(number: int) -> None:
            told.append(number)
            output.cancel()

        # A terminal in raw mode must be given back also where someone ends this process.
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, end, number)
        try:
            return await output
        except asyncio.CancelledError:
            if not told:
                raise
            return {"signal": told[0]}
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP):
                self._loop.remove_signal_handler(number)

    async def _output(self) -> dict[str, Any]:
        async for message in self._socket:
            if message.type is WSMsgType.TEXT:
                return read_control(message.data)
            if message.type is not WSMsgType.BINARY:
                break
            try:
                stream, data = split_frame(message.data)
            except HeteroFlowError:
                break
            fd = 2 if stream == STDERR else 1
            if fd in self._decoders:
                data = sanitize(self._decoders[fd].decode(data), lines=True).encode()
            # Beside the loop: whoever reads us may be slow, and pings must be answered meanwhile.
            await asyncio.to_thread(_write, fd, data)
        return {}

    async def _input(self) -> None:
        try:
            while data := await self._read():
                await self._socket.send_bytes(data_frame(STDIN, data))
            await self._socket.send_json({"eof": True})
        except (ConnectionError, aiohttp.ClientError):
            return  # the other direction says what became of it

    async def _read(self) -> bytes:
        kind = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(0)):
            return await asyncio.to_thread(os.read, 0, EXEC_READ_BYTES)
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(0, _wake, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(0)
        try:
            return os.read(0, EXEC_READ_BYTES)
        except OSError:
            return b""

    async def _sizes(self, resized: asyncio.Event) -> None:
        while True:
            await resized.wait()
            resized.clear()
            size = os.get_terminal_size(0)
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                await self._socket.send_json({"resize": [max(size.lines, 1), max(size.columns, 1)]})


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the program, ctrl-c too."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _wake(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
