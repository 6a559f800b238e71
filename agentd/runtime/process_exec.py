"""A program within the namespaces of a task of the process runtime."""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentd.runtime.base import RuntimeRefused
from agentd.runtime.exec_session import ExecEnd
from agentd.shim.host import Process, descendants, is_alive, process_table, read_json, read_process, send
from agentd.shim.record import MARK, SPEC, TaskRecord
from schemas.exec_frames import STDERR, STDOUT, ExecRequest
from schemas.limits import EXEC_READ_BYTES

_ENTER = str(Path(__file__).resolve().parent.parent / "shim" / "enter.py")
_HANG_UP_S, _LOOK_S = 2.0, 0.05
# What a program that has ended may have left in its pipes, while a child of it still holds them open.
_LAST_WORDS_S = 0.5
_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh")
_END_OF_INPUT = b"\x04"


def shell_or(argv: tuple[str, ...]) -> tuple[str, ...]:
    return argv or _SHELL


class ProcessExec:
    """outputs: descriptor -> stream. Of a terminal there is one descriptor for both directions."""

    def __init__(self, process: "subprocess.Popen[bytes]", source: int, outputs: dict[int, int], tty: bool) -> None:
        self._process, self._source, self._outputs, self._tty = process, source, outputs, tty
        self._loop = asyncio.get_running_loop()
        self._seen = read_process(process.pid)
        self._fds = {source, *outputs}
        for fd in self._fds:
            os.set_blocking(fd, False)
        self._ended: asyncio.Future[int] = self._loop.create_future()
        # Not by asyncio's own: that calls a process ended only when nobody holds its pipes any more.
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    async def read(self) -> tuple[int, bytes] | None:
        while self._outputs:
            for fd, stream in list(self._outputs.items()):
                try:
                    data = os.read(fd, EXEC_READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""  # a terminal that nobody holds open any more
                if data:
                    return stream, data
                del self._outputs[fd]
            if self._outputs and not await self._readable():
                return None
        return None

    async def write(self, data: bytes) -> None:
        while data and self._source >= 0 and not self._ended.done():
            try:
                data = data[os.write(self._source, data) :]
            except BlockingIOError:
                await self._writable(self._source)
            except OSError:
                return

    async def write_eof(self) -> None:
        if self._tty:
            await self.write(_END_OF_INPUT)
        elif self._source >= 0:
            self._close(self._source)
            self._source = -1

    async def resize(self, rows: int, cols: int) -> None:
        if self._tty and self._source >= 0:
            _set_size(self._source, rows, cols)

    async def ended(self) -> ExecEnd:
        code = await asyncio.shield(self._ended)
        return ExecEnd(signal=-code) if code < 0 else ExecEnd(exit_code=code)

    async def close(self) -> None:
        self._source = -1
        self._outputs.clear()
        for fd in list(self._fds):
            self._close(fd)
        if not self._ended.done() and self._seen is not None:
            await hang_up(self._seen)
            await self._ended

    def _close(self, fd: int) -> None:
        if fd in self._fds:
            self._fds.discard(fd)
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
            os.close(fd)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()
        if not self._ended.done():
            self._ended.set_result(code)

    async def _readable(self) -> bool:
        """False where the program has ended and said its last words, though a child of it still holds its streams."""
        waiting = self._loop.create_future()
        watched = list(self._outputs)
        for fd in watched:
            self._loop.add_reader(fd, _wake, waiting)
        try:
            await asyncio.wait({waiting, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await asyncio.wait({waiting}, timeout=_LAST_WORDS_S)
            return waiting.done()
        finally:
            for fd in watched:
                if fd in self._fds:
                    self._loop.remove_reader(fd)

    async def _writable(self, fd: int) -> None:
        waiting = self._loop.create_future()
        self._loop.add_writer(fd, _wake, waiting)
        try:
            await asyncio.wait({waiting, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if fd in self._fds:
                self._loop.remove_writer(fd)


async def hang_up(program: Process) -> None:
    """SIGHUP to the program and all that it has started, and SIGKILL to what of it is there a moment later. Found
    first: what a dead shell leaves behind is nobody's child that could be known."""
    found = await asyncio.to_thread(lambda: [program, *descendants([program.pid], process_table())])
    for process in found:
        send(process, signal.SIGHUP)
    for _ in range(round(_HANG_UP_S / _LOOK_S)):
        if not any(is_alive(process.pid, process.start) for process in found):
            return
        await asyncio.sleep(_LOOK_S)
    for process in found:
        send(process, signal.SIGKILL)


async def enter_task(record: TaskRecord, path: Path, request: ExecRequest) -> ProcessExec:
    """record, path: of the task. Raises RuntimeRefused."""
    spec: Mapping[str, Any] = read_json(str(path / SPEC)) or {}
    env = {str(name): str(value) for name, value in dict(spec.get("env") or {}).items()}
    env[MARK] = str(path)
    cwd = str(spec.get("cwd") or path)
    options = ["--tty"] if request.tty else []
    words = [sys.executable, "-I", "-S", "-E", _ENTER, *options]
    words += [str(record.pid), str(record.start), record.ns, cwd, "--", *shell_or(request.argv)]
    if request.tty:
        env["TERM"] = request.term
    try:
        return _on_terminal(words, env, request) if request.tty else _on_pipes(words, env)
    except (OSError, ValueError) as error:
        raise RuntimeRefused(f"no program can be started beside the task: {error}") from error


def _on_terminal(words: list[str], env: dict[str, str], request: ExecRequest) -> ProcessExec:
    master, slave = os.openpty()
    try:
        _set_size(master, request.rows, request.cols)
        process = _started(words, env, slave)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    return ProcessExec(process, master, {master: STDOUT}, tty=True)


def _on_pipes(words: list[str], env: dict[str, str]) -> ProcessExec:
    process = _started(words, env, subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    # Descriptors of our own: those of the process object close with it.
    source, out, err = (os.dup(stream.fileno()) for stream in (process.stdin, process.stdout, process.stderr))
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    return ProcessExec(process, source, {out: STDOUT, err: STDERR}, tty=False)


def _started(words: list[str], env: dict[str, str], stream: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        words, stdin=stream, stdout=stream, stderr=stream, env=env, cwd="/", start_new_session=True, bufsize=0
    )


def _set_size(fd: int, rows: int, cols: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
