"""The two directions of an exec session between a WebSocket and the program, or a WebSocket and the next agent."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web

from agentd.exec_service import ExecService
from agentd.runtime.base import TaskId
from agentd.runtime.exec_session import ExecEnd, ExecSession
from schemas.errors import InvalidInput, Problem, Unavailable
from schemas.exec_frames import STDIN, ExecRequest, data_frame, read_control, read_size, split_frame
from schemas.limits import EXEC_FRAME_MAX

# A program whose task was ended is killed with it; so long its last output and its end may take.
_LAST_S = 3.0
_CONNECT_S = 5.0
_ENDINGS = ("exit_code", "signal", "problem")


class ExecLeft(Exception):
    """The client is gone: nobody is left to be told anything."""


async def serve(socket: web.WebSocketResponse, service: ExecService, key: TaskId, asked: ExecRequest) -> dict[str, Any]:
    """The last frame, which was sent. Raises HeteroFlowError before the program runs and for bad frames, ExecLeft."""
    async with service.session(key, asked) as (session, over):
        await _send(socket, {"started": True})
        out = asyncio.create_task(_output(socket, session))
        into = asyncio.create_task(_input(socket, session))
        gone = asyncio.create_task(over.wait())
        try:
            await asyncio.wait({out, into, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not out.done():
                await asyncio.wait({out, into}, timeout=_LAST_S, return_when=asyncio.FIRST_COMPLETED)
            if out.done():
                out.result()
                return await _finish(socket, await session.ended())
            if into.done():
                into.result()
                raise ExecLeft
            return await _finish(socket, ExecEnd(text="the rank has ended, and this program with it"))
        finally:
            await _cancelled(out, into, gone)


async def relay(
    socket: web.WebSocketResponse,
    peers: aiohttp.ClientSession,
    address: str,
    key: TaskId,
    asked: ExecRequest,
    headers: Mapping[str, str],
) -> dict[str, Any]:
    """As `serve`, by the agent at `address`. headers: for whom it is asked."""
    url = f"http://{address}/mesh/v1/exec/{key.group_id}/{key.attempt}/{key.rank}"
    try:
        async with asyncio.timeout(_CONNECT_S):
            upstream = await peers.ws_connect(url, headers=headers, heartbeat=20.0, max_msg_size=EXEC_FRAME_MAX)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Unavailable(
            "node_silent",
            f"the agent at {address}, which runs rank {key.rank}, does not answer",
            "try again in a moment",
        ) from error
    try:
        await upstream.send_json(asked.to_dict())
        back = asyncio.create_task(_back(upstream, socket))
        forth = asyncio.create_task(_forth(socket, upstream))
        try:
            await asyncio.wait({back, forth}, return_when=asyncio.FIRST_COMPLETED)
            if back.done():
                return back.result()
            forth.result()
            raise ExecLeft
        finally:
            await _cancelled(back, forth)
    finally:
        await upstream.close()


async def _output(socket: web.WebSocketResponse, session: ExecSession) -> None:
    while (chunk := await session.read()) is not None:
        try:
            await socket.send_bytes(data_frame(*chunk))
        except (ConnectionError, aiohttp.ClientError) as error:
            raise ExecLeft from error


async def _input(socket: web.WebSocketResponse, session: ExecSession) -> None:
    """Until the client leaves."""
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            stream, data = split_frame(message.data)
            if stream != STDIN:
                raise InvalidInput("invalid_exec", "a client sends stream 0 alone")
            await session.write(data)
        elif message.type is WSMsgType.TEXT:
            control = read_control(message.data)
            if "resize" in control:
                await session.resize(*read_size(control["resize"]))
            if control.get("eof") is True:
                await session.write_eof()
        else:
            return


async def _back(upstream: aiohttp.ClientWebSocketResponse, socket: web.WebSocketResponse) -> dict[str, Any]:
    """The frame that ends the session."""
    async for message in upstream:
        try:
            if message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
            elif message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
                value = json.loads(message.data)
                if any(name in value for name in _ENDINGS):
                    return dict(value)
        except (ConnectionError, aiohttp.ClientError) as error:
            raise ExecLeft from error
    raise Unavailable("node_silent", "the node that runs the rank closed the connection", "open the session again")


async def _forth(socket: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse) -> None:
    async for message in socket:
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            if message.type is WSMsgType.BINARY:
                await upstream.send_bytes(message.data)
            elif message.type is WSMsgType.TEXT:
                await upstream.send_str(message.data)


async def _finish(socket: web.WebSocketResponse, end: ExecEnd) -> dict[str, Any]:
    frame: dict[str, Any]
    if end.exit_code is not None:
        frame = {"exit_code": end.exit_code}
    elif end.signal is not None:
        frame = {"signal": end.signal}
    else:
        frame = {"problem": Problem("exec_cut_off", end.text, status=409).to_dict()}
    await _send(socket, frame)
    return frame


async def _send(socket: web.WebSocketResponse, value: dict[str, Any]) -> None:
    try:
        await socket.send_str(json.dumps(value))
    except (ConnectionError, aiohttp.ClientError) as error:
        raise ExecLeft from error


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
