"""A program beside a running rank, over a WebSocket: at any node, and at the node that runs the rank."""

import asyncio
import contextlib
import logging
import shlex
import time
from collections.abc import Coroutine
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web

from agentd.exec_service import ExecService
from agentd.exec_stream import ExecLeft, relay, serve
from agentd.http.answer import json_bytes
from agentd.http.callers import caller_of, on_behalf
from agentd.http.context import API, checked_group_id, mesh_of, read, require_rank, require_visible, visible
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY, Whole
from agentd.http.proposing import propose_once
from agentd.http.stream_end import lapse
from agentd.runtime.base import TaskId
from schemas.commands import command
from schemas.errors import Conflict, HeteroFlowError, InvalidInput, NotFound, Unavailable
from schemas.exec_frames import ExecRequest, read_control, read_request
from schemas.limits import EXEC_FRAME_MAX
from schemas.rules.permissions import Permission
from schemas.rules.redaction import redact_words

log = logging.getLogger(__name__)
routes = web.RouteTableDef()
_RANK = Whole("rank", 0, 1_000_000, "beside which rank", 0)
_FIRST_FRAME_S = 10.0
_PROPOSE_S = 10.0
_SHOWN_MAX = 256


class NoWebSocket(HeteroFlowError):
    status = 426


@routes.get("/api/v1/task-groups/{group_id}/exec")
@needs(Permission.WRITE_GROUPS)
@Described(
    "A program beside a running rank (WebSocket)",
    statuses=(101,),
    parameters=(CONSISTENCY, _RANK),
    problems=(404, 409, 426),
)
async def group_exec(request: web.Request) -> web.StreamResponse:
    """The first frame is `{argv, tty, rows, cols, term}`; `schemas/exec_frames.py` has them all."""
    group_id = checked_group_id(request.match_info["group_id"])
    rank = _RANK.read(request)
    key, node, address = await _where(request, group_id, rank)
    service = _service(request)
    socket = await _upgraded(request)

    async def session() -> None:
        asked = await _first_frame(socket)
        audit = _Audit(request, key, asked)
        await audit.opened()
        ending: dict[str, Any] = {}
        try:
            if node == request.app[API].node_id:
                ending = await serve(socket, service, key, asked)
            else:
                ending = await relay(socket, service.session_to_peers, address, key, asked, on_behalf(request))
        finally:
            await audit.ended(ending)

    return await _as_long_as_allowed(request, socket, session())


@routes.get("/mesh/v1/exec/{group_id}/{attempt}/{rank}")
@needs(Permission.WRITE_GROUPS, peer=True)
@Described("The same, by the host that runs the rank (WebSocket)", statuses=(101,), problems=(404, 409, 426))
async def rank_exec(request: web.Request) -> web.StreamResponse:
    attempt, rank = request.match_info["attempt"], request.match_info["rank"]
    if not (attempt.isascii() and attempt.isdigit() and rank.isascii() and rank.isdigit()) or len(attempt + rank) > 16:
        raise NotFound("not_found", "no such rank")
    key = TaskId(checked_group_id(request.match_info["group_id"]), int(attempt), int(rank))
    await require_visible(request, key.group_id)
    service = _service(request)
    socket = await _upgraded(request)

    async def session() -> None:
        await serve(socket, service, key, await _first_frame(socket))

    return await _as_long_as_allowed(request, socket, session())


async def _as_long_as_allowed(
    request: web.Request, socket: web.WebSocketResponse, session: Coroutine[Any, Any, None]
) -> web.WebSocketResponse:
    running, lapsing = asyncio.create_task(session), asyncio.create_task(lapse(request))
    try:
        await asyncio.wait({running, lapsing}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        else:
            await _tell(socket, lapsing.result().to_dict())
    except HeteroFlowError as error:
        await _tell(socket, error.problem.to_dict())
    except ExecLeft:
        pass
    finally:
        for task in (running, lapsing):
            task.cancel()
        await asyncio.gather(running, lapsing, return_exceptions=True)
    with contextlib.suppress(ConnectionError):
        await socket.close()
    return socket


class _Audit:
    """Who ran what beside which rank, on the group's timeline: before it begins, and when it is over."""

    def __init__(self, request: web.Request, key: TaskId, asked: ExecRequest) -> None:
        self._request, self._by, self._key = request, caller_of(request).name, key
        said = shlex.join(redact_words(asked.argv)) if asked.argv else "a shell"
        self._what = said if len(said) <= _SHOWN_MAX else said[: _SHOWN_MAX - 1] + "…"
        self._began = time.monotonic()

    async def opened(self) -> None:
        """Raises what the state refuses: nothing runs that is not written down."""
        await propose_once(self._request, self._record("opened", self._what), f"exec {self._what}".encode())

    async def ended(self, ending: dict[str, Any]) -> None:
        took_s = time.monotonic() - self._began
        how = next((f"{name} {ending[name]}" for name in ("exit_code", "signal") if name in ending), "cut off")
        text = f"{self._what}: {how.replace('_', ' ')} after {took_s:.0f} s"
        try:
            # In the agent's own name: the key of whoever opened it may have been revoked meanwhile.
            said = mesh_of(self._request).propose(self._record("ended", text), timeout_s=_PROPOSE_S)
            await asyncio.shield(said)
        except HeteroFlowError as error:
            log.warning("the end of an exec session is not on the timeline of %s: %s", self._key.group_id, error)

    def _record(self, phase: str, text: str) -> dict[str, Any]:
        key = self._key
        return command(
            "RecordExec",
            group_id=key.group_id,
            attempt=key.attempt,
            rank=key.rank,
            by=self._by,
            phase=phase,
            text=text,
        )


async def _where(request: web.Request, group_id: str, rank: int) -> tuple[TaskId, str, str]:
    """The running task, its node, and that node's address. Raises NotFound, Conflict."""
    reading = await read(request, {"get": ["group", group_id]})
    group = visible(request, group_id, reading.results[0])
    attempt = int(group["attempt"])
    reading = await read(request, {"get": ["task", f"{group_id}/{attempt:04d}/{rank:05d}"]})
    (task,) = reading.results
    if task is None or task["status"] != "running":
        require_rank(group, rank)
        said = f": it is {task['status']}" if task is not None else ""
        raise Conflict(
            "rank_not_running",
            f"rank {rank} of group {group_id} does not run{said}, and the group is {group['status']}",
            "a program is started beside a running rank only; `heteroflow show` lists them",
        )
    (row,) = (await read(request, {"get": ["node", task["node"]]})).results
    if row is None:
        raise Unavailable("node_lost", f"node {task['node']} is not in the mesh any more", "try again in a moment")
    return TaskId(group_id, attempt, rank), str(task["node"]), str(row["api_addr"])


async def _upgraded(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(heartbeat=20.0, compress=False, max_msg_size=EXEC_FRAME_MAX)
    if not socket.can_prepare(request):
        raise NoWebSocket("websocket_wanted", "this route speaks WebSocket alone", "use `heteroflow exec`")
    await socket.prepare(request)
    return socket


async def _first_frame(socket: web.WebSocketResponse) -> ExecRequest:
    try:
        async with asyncio.timeout(_FIRST_FRAME_S):
            message = await socket.receive()
    except TimeoutError as error:
        raise InvalidInput(
            "invalid_exec", f"no request came within {_FIRST_FRAME_S:.0f} s", "send the request as the first frame"
        ) from error
    if message.type is not WSMsgType.TEXT:
        if message.type is WSMsgType.BINARY:
            raise InvalidInput("invalid_exec", "the first frame must be a JSON object", "send the request first")
        raise ExecLeft
    return read_request(read_control(message.data))


async def _tell(socket: web.WebSocketResponse, problem: dict[str, Any]) -> None:
    with contextlib.suppress(ConnectionError, aiohttp.ClientError):
        await socket.send_str(json_bytes({"problem": problem}).decode())


def _service(request: web.Request) -> ExecService:
    service = request.app[API].execs
    if service is None:
        raise Unavailable("not_joined", "this agent has not joined a mesh yet", "ask another agent meanwhile")
    return service
