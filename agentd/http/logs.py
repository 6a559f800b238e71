"""Logs: of a group at any node, of one rank at the node that has the files. NDJSON, one object a line."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from agentd.group_logs import GroupLogs, tasks_by_id
from agentd.http.answer import json_bytes
from agentd.http.callers import on_behalf
from agentd.http.context import (
    API,
    checked_group_id,
    mesh_of,
    read,
    require_attempt,
    require_rank,
    require_visible,
    scan_all,
    visible,
)
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY, Flag, Whole, Words, refused
from agentd.http.stream_end import lapse
from agentd.log_service import Item, LogService, Place
from agentd.runtime.base import TaskId
from schemas.errors import NotFound, Unavailable
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()
NDJSON = "application/x-ndjson"
_RANK = Whole("rank", 0, 1_000_000, "of this one alone")
_ATTEMPT = Whole("attempt", 1, 9999, "of this one alone; the current one if not given")
_TAIL = Whole("tail", 0, 100_000, "begin with the last so many lines of each rank")
_FOLLOW = Flag("follow", "go on until the group has ended, into later attempts where none was named")
_OFFSET = Whole("offset", 0, (1 << 62) - 1, "of the last line read; with rank", 0)
# 30 bytes for each of up to 1,250 ranks.
_PLACE_TEXT = r"[0-9]{1,4}\.[0-9]{1,6}:[0-9]{1,15}"
_PLACES = rf"^({_PLACE_TEXT}(,{_PLACE_TEXT})*)?$"
_RESUME = Words("resume", "ATTEMPT.RANK:OFFSET,... of the last lines read", _PLACES, 65_536)


@routes.get("/api/v1/task-groups/{group_id}/logs")
@needs(Permission.READ_GROUPS)
@Described(
    "What the ranks wrote",
    kind=NDJSON,
    parameters=(CONSISTENCY, _RANK, _ATTEMPT, _TAIL, _FOLLOW, _OFFSET, _RESUME),
)
async def group_logs(request: web.Request) -> web.StreamResponse:
    """One object a line: `{rank, attempt, offset, at, stream, text, line_end?}`, `{rank, attempt, offset, dropped,
    why}` for bytes that are gone, `{rank, attempt, problem}` for a host that does not answer, `{}` every 5 s of
    silence, last `{end: true, status}`."""
    group_id = checked_group_id(request.match_info["group_id"])
    only_rank, only_attempt = _RANK.read(request), _ATTEMPT.read(request)
    places = _places(_RESUME.read(request))
    place, follow = _place(request), _FOLLOW.read(request)
    if place.offset and only_rank < 0:
        raise refused(_OFFSET.name, str(place.offset), "names a place in one rank's log", "add rank=, or use resume=")
    tasks, _ = await scan_all(request, "task", f"{group_id}/")
    reading = await read(request, {"get": ["group", group_id]})
    group = visible(request, group_id, reading.results[0])
    require_attempt(group, only_attempt)
    require_rank(group, only_rank)
    lines = GroupLogs(
        mesh_of(request),
        _service(request),
        group,
        tasks_by_id(tasks),
        only_rank=only_rank if only_rank >= 0 else None,
        only_attempt=only_attempt if only_attempt > 0 else None,
        place=place,
        places=places,
        follow=follow,
        on_behalf=on_behalf(request),
    )
    return await _stream(request, lines.batches(), reading.headers)


@routes.get("/mesh/v1/logs/{group_id}/{attempt}/{rank}")
@needs(Permission.READ_GROUPS, peer=True)
@Described("One rank's lines, by the host that has the files", kind=NDJSON, parameters=(_TAIL, _FOLLOW, _OFFSET))
async def rank_log(request: web.Request) -> web.StreamResponse:
    attempt, rank = request.match_info["attempt"], request.match_info["rank"]
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 for part in (attempt, rank)):
        raise NotFound("not_found", "no such log")
    key = TaskId(checked_group_id(request.match_info["group_id"]), int(attempt), int(rank))
    await require_visible(request, key.group_id)
    return await _stream(request, _service(request).local(key, _place(request), _FOLLOW.read(request)), {})


async def _stream(
    request: web.Request, batches: AsyncIterator[list[Item]], headers: dict[str, str]
) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={
            "Content-Type": NDJSON,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **headers,
        }
    )
    await response.prepare(request)
    writing, lapsing = asyncio.create_task(_write(response, batches)), asyncio.create_task(lapse(request))
    try:
        await asyncio.wait({writing, lapsing}, return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()
        elif request.transport is not None:
            # Cut, not ended: a reader that comes back is told why.
            request.transport.abort()
    finally:
        for task in (writing, lapsing):
            task.cancel()
        await asyncio.gather(writing, lapsing, return_exceptions=True)
    return response


async def _write(response: web.StreamResponse, batches: AsyncIterator[list[Item]]) -> None:
    try:
        async for batch in batches:
            await response.write(b"".join(json_bytes(item) + b"\n" for item in batch or ({},)))
        await response.write_eof()
    except ConnectionError:
        pass  # the reader left


def _service(request: web.Request) -> LogService:
    service = request.app[API].logs
    if service is None:
        raise Unavailable("not_joined", "this agent has not joined a mesh yet", "ask another agent meanwhile")
    return service


def _place(request: web.Request) -> Place:
    tail = _TAIL.read(request)
    return Place(_OFFSET.read(request), tail if tail >= 0 else None)


def _places(text: str) -> dict[tuple[int, int], int]:
    places: dict[tuple[int, int], int] = {}
    for part in text.split(",") if text else ():
        name, _, offset = part.partition(":")
        attempt, _, rank = name.partition(".")
        if not all(piece.isascii() and piece.isdigit() and len(piece) <= 18 for piece in (attempt, rank, offset)):
            raise refused(_RESUME.name, part, "is not ATTEMPT.RANK:OFFSET")
        places[int(attempt), int(rank)] = int(offset)
    return places
