"""A program within a running container, by the engine: same user, environment, limits and walls as the task."""

import asyncio
import contextlib
import json
from typing import Any

from agentd.runtime.base import RuntimeRefused
from agentd.runtime.docker.engine import LOOK_S, Engine, EngineRefused, EngineSilent, EngineTrouble
from agentd.runtime.exec_session import ExecEnd
from agentd.runtime.process_exec import hang_up, shell_or
from agentd.shim.host import Process, read_process
from schemas.exec_frames import STDERR, STDOUT, ExecRequest
from schemas.limits import EXEC_READ_BYTES

_HEADER = 8
_ANSWER_S = 15.0
_ANSWER_MAX = 64 * 1024
_END_OF_INPUT = b"\x04"
_POLL_S, _BORN_S = 0.05, 2.0


class ContainerExec:
    """reader, writer: the engine's raw stream; without a terminal its output comes in frames of the engine."""

    def __init__(
        self,
        engine: Engine,
        exec_id: str,
        tty: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._engine, self._id, self._tty = engine, exec_id, tty
        self._reader, self._writer = reader, writer
        self._process: Process | None = None
        self._left, self._stream = 0, STDOUT
        self._over = False

    async def note_process(self) -> None:
        """So that it can be ended without the engine, and never another that got its pid."""
        for _ in range(round(_BORN_S / _POLL_S)):
            # The engine opens the stream before the program is there.
            pid = int((await self._look()).get("Pid") or 0)
            if pid:
                self._process = read_process(pid)
                return
            await asyncio.sleep(_POLL_S)

    async def read(self) -> tuple[int, bytes] | None:
        try:
            while not self._tty and not self._left:
                header = await self._reader.readexactly(_HEADER)
                self._stream = STDERR if header[0] == STDERR else STDOUT
                self._left = int.from_bytes(header[4:], "big")
            most = EXEC_READ_BYTES if self._tty else min(self._left, EXEC_READ_BYTES)
            data = await self._reader.read(most)
        except (asyncio.IncompleteReadError, OSError):
            return None
        self._left -= 0 if self._tty else len(data)
        return (self._stream, data) if data else None

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(data)
            await self._writer.drain()

    async def write_eof(self) -> None:
        if self._tty:
            return await self.write(_END_OF_INPUT)
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write_eof()

    async def resize(self, rows: int, cols: int) -> None:
        if self._tty:
            with contextlib.suppress(EngineTrouble):
                await self._engine.call(LOOK_S, lambda api: api.exec_resize(self._id, height=rows, width=cols))

    async def ended(self) -> ExecEnd:
        try:
            async with asyncio.timeout(_ANSWER_S):
                shown = await self._look()
                while shown.get("Running"):
                    await asyncio.sleep(_POLL_S)
                    shown = await self._look()
        except (EngineTrouble, TimeoutError) as error:
            return ExecEnd(text=f"how it ended is not known: {error or 'the engine does not say'}")
        self._over = True
        code = shown.get("ExitCode")
        return (
            ExecEnd(exit_code=int(code)) if code is not None else ExecEnd(text="the engine does not say how it ended")
        )

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        process, self._process = self._process, None
        if process is None or self._over:
            return
        # The engine lets a program run on when nobody listens to it any more.
        await hang_up(process)

    async def _look(self) -> dict[str, Any]:
        shown: dict[str, Any] = await self._engine.call(LOOK_S, lambda api: api.exec_inspect(self._id))
        return shown


async def exec_in_container(engine: Engine, container: str, request: ExecRequest) -> ContainerExec:
    """Raises RuntimeRefused."""
    env = [f"TERM={request.term}"] if request.tty else None
    try:
        made = await engine.call(
            LOOK_S,
            lambda api: api.exec_create(
                container, list(shell_or(request.argv)), stdin=True, tty=request.tty, environment=env
            ),
        )
        exec_id = str(made["Id"])
        reader, writer = await _raw(engine.socket, exec_id, request)
    except (EngineSilent, EngineRefused) as error:
        raise RuntimeRefused(f"the engine starts no program in the container: {error}") from error
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise RuntimeRefused(f"the engine opens no stream to the container: {error or 'no answer'}") from error
    session = ContainerExec(engine, exec_id, request.tty, reader, writer)
    with contextlib.suppress(EngineTrouble):
        await session.note_process()
    await session.resize(request.rows, request.cols)
    return session


async def _raw(socket: str, exec_id: str, request: ExecRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The engine's client hands streams to threads only; this is its upgrade request on a connection of our own."""
    reader, writer = await asyncio.open_unix_connection(socket, limit=_ANSWER_MAX)
    try:
        body = json.dumps({"Detach": False, "Tty": request.tty}).encode()
        head = (
            f"POST /exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
            f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode("ascii") + body)
        async with asyncio.timeout(_ANSWER_S):
            answer = await reader.readuntil(b"\r\n\r\n")
            status = answer.split(None, 2)[1] if answer.count(b" ") else b""
            if status not in (b"101", b"200"):
                said = await reader.read(_ANSWER_MAX)
                raise ValueError(
                    f"it answered {status.decode('ascii', 'replace')} {said[:500].decode(errors='replace')}"
                )
    except BaseException:
        writer.close()
        raise
    return reader, writer
