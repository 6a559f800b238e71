"""`/watch`: the change feed over a WebSocket, snapshot first, resumable at any node by token."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import WSCloseCode, web

from agentd.core.tenant_rows import TenantRows
from agentd.http.answer import json_bytes
from agentd.http.callers import caller_of
from agentd.http.context import checked_group_id, mesh_of
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import Choice, Flag, Whole, Words
from agentd.http.stream_end import lapse
from agentd.lively import lively
from agentd.paced import paced
from schemas.errors import HeteroFlowError
from schemas.rules.checkpoints.at_risk import work_at_risk
from schemas.rules.permissions import Caller, Permission
from schemas.task_types import shown_shape

routes = web.RouteTableDef()
HEARTBEAT_S = 5.0
_GROUP = Words("group", "only this one, with its tasks and events")
_ALL = Flag("all", "ended groups too")
_SINCE = Words("since", "token of the last frame read: only what came later")
_ROWS = Choice("rows", ("full", "brief"), "brief: of groups what a list shows, else nodes, holds and the mesh", "full")
_EVERY = Whole("every_ms", 0, 10_000, "changes of so many ms are told together, of each row its last state", 0)
_CLOSE_PROBLEM = 4400
_CLOSE_LAPSED = 4401
_FAREWELL_S = 2.0
_BRIEF_ENTITIES = frozenset(("group", "node", "hold", "meta"))
_BRIEF_GROUP = (
    "group_id",
    "name",
    "task_type",
    "status",
    "attempt",
    "user",
    "tenant",
    "priority",
    "nodes",
    "submit_idx",
    "created_ms",
    "started_ms",
    "ended_ms",
    "restarts",
    "ending",
)
_BRIEF_PARTS = {"pending_reason": ("code", "text"), "failure": ("text", "rank")}


class NoWebSocket(HeteroFlowError):
    status = 426


@routes.get("/api/v1/watch")
@needs(Permission.READ_GROUPS)
@Described(
    "Changes as they happen (WebSocket)",
    statuses=(101,),
    parameters=(_GROUP, _ALL, _SINCE, _ROWS, _EVERY),
    problems=(404, 426),
)
async def watch(request: web.Request) -> web.StreamResponse:
    """Frames: `{snapshot, token, more}`, `{idx, changes, token}`, `{}` as heartbeat, `{problem}` before an end.

    `rows=brief`: of groups what a list shows, of the rest nodes, holds and the mesh, so that who watches thousands of
    groups is not sent every document and every rank. `every_ms`: a feed that was quiet is told at once, a busy one in
    one frame for each such time, so that who watches a screen of rows does not pay for each change of them."""
    mesh = mesh_of(request)
    group, all_groups, brief = _GROUP.read(request), _ALL.read(request), _ROWS.read(request) == "brief"
    wanted: dict[str, Any] = {"group": checked_group_id(group)} if group else {"active": True}
    if all_groups and not group:
        wanted = {"all": True}
    socket = web.WebSocketResponse(heartbeat=20.0, compress=False, max_msg_size=4096)
    if not socket.can_prepare(request):
        raise NoWebSocket("websocket_wanted", "this route speaks WebSocket alone", "ask with Upgrade: websocket")
    since, caller = _SINCE.read(request) or None, caller_of(request)
    rows, every_ms = _rows_of(caller), _EVERY.read(request)
    # Who does not see all begins anew, because which rows were its own at an earlier place is known no more.
    frames = mesh.subscribe(wanted, since if rows is None or caller.sees_all else None)
    if every_ms:
        frames = paced(frames, every_ms / 1000)
    if rows is not None:
        frames = _shown(frames, rows, compacted=since is not None and not caller.sees_all)
    try:
        await socket.prepare(request)
    except ConnectionError:
        return socket  # it left while it was let in
    pump = asyncio.create_task(_pump(socket, _brief(frames) if brief else frames))
    lapsing = asyncio.create_task(_end_with_the_right(request, socket, pump))
    try:
        async for _ in socket:
            pass  # a watcher has nothing to say; this notices that it left
    finally:
        for task in (pump, lapsing):
            task.cancel()
        ended = await asyncio.gather(pump, lapsing, return_exceptions=True)
    if failed := [error for error in ended if isinstance(error, Exception)]:
        raise failed[0]
    return socket


async def _end_with_the_right(request: web.Request, socket: web.WebSocketResponse, pump: "asyncio.Task[None]") -> None:
    problem = await lapse(request)
    pump.cancel()
    transport = request.transport
    try:
        async with asyncio.timeout(_FAREWELL_S):
            await socket.send_str(json_bytes({"problem": problem.to_dict()}).decode())
            await socket.close(code=_CLOSE_LAPSED, message=problem.code.encode()[:100])
    except (TimeoutError, ConnectionError):
        pass
    finally:
        # Whoever does not read gets no more either.
        if transport is not None:
            transport.abort()


def _rows_of(caller: Caller) -> TenantRows | None:
    """None for who may see all of them as they are."""
    secrets, nodes = caller.may(Permission.WRITE_GROUPS), caller.may(Permission.READ_MESH)
    if caller.sees_all and secrets and nodes:
        return None
    return TenantRows(None if caller.sees_all else caller.tenant, secrets, nodes)


async def _shown(
    frames: AsyncIterator[dict[str, Any]], rows: TenantRows, compacted: bool
) -> AsyncIterator[dict[str, Any]]:
    """compacted: the watcher wanted to go on from a place, and was given a snapshot."""
    parts: list[dict[str, Any]] = []
    async for frame in frames:
        if "snapshot" in frame:
            parts.append(frame | ({"compacted": True} if compacted else {}))
            if not frame.get("more"):
                for part, shown in zip(parts, rows.snapshot([part["snapshot"] for part in parts]), strict=True):
                    yield part | {"snapshot": shown}
                parts = []
        elif shown := rows.changes(frame["changes"]):
            yield frame | {"changes": shown}
        elif not frame["changes"]:
            yield frame


async def _brief(frames: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    async for frame in frames:
        kind = "snapshot" if "snapshot" in frame else "changes"
        rows = frame.get(kind) or []
        kept = [[entity, key, _brief_row(entity, row)] for entity, key, row in rows if entity in _BRIEF_ENTITIES]
        # A frame that never had rows moves the token on.
        if kept or not rows or kind == "snapshot":
            yield frame | {kind: kept}


def _brief_row(entity: str, row: dict[str, Any] | None) -> dict[str, Any] | None:
    if entity != "group" or row is None:
        return row
    said = {name: row.get(name) for name in _BRIEF_GROUP}
    said |= shown_shape(row.get("document") or {})
    for name, parts in _BRIEF_PARTS.items():
        part = row.get(name)
        said[name] = part and {key: part.get(key) for key in parts}
    risk = work_at_risk(row)
    said["risk_since_ms"] = risk.since_ms if risk is not None else None
    return said


async def _pump(socket: web.WebSocketResponse, frames: AsyncIterator[dict[str, Any]]) -> None:
    async def send(value: dict[str, Any]) -> None:
        await socket.send_str(json_bytes(value).decode())

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await send({})

    beating = asyncio.create_task(beat())
    try:
        async for frame in lively(frames):
            await send(frame)
        await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the feed ended; watch again with since")
    except HeteroFlowError as error:
        await send({"problem": error.problem.to_dict()})
        await socket.close(code=_CLOSE_PROBLEM, message=error.code.encode()[:100])
    except ConnectionError:
        pass
    finally:
        beating.cancel()
