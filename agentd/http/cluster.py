"""What the mesh has and what waits for it: nodes, queue, mesh."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from agentd.http import group_view
from agentd.http.answer import answer
from agentd.http.callers import caller_of
from agentd.http.context import API, Reading, answer_reading, for_caller, mesh_of, read, reading_headers, scan_all
from agentd.http.description import Described
from agentd.http.gossip import TwoViews
from agentd.http.needs import needs
from agentd.http.page import page_of
from agentd.http.parameter import CONSISTENCY, Words, limit
from schemas.api import MeshShown, NodeList, Queue
from schemas.errors import NoLeader
from schemas.limits import NODES_MAX
from schemas.rules.permissions import Permission
from schemas.rules.recovery_rate import RecoveryRate, recovery_rate
from schemas.states import GROUP_STATUSES, PENDING

routes = web.RouteTableDef()
_PAGE = 1000
_JUDGED = 500
_PRIORITY_SPAN = 1 << 31
_STATUS_S = 5.0
_NODES_LIMIT, _QUEUE_LIMIT = limit(NODES_MAX, NODES_MAX), limit(10_000, 1000)
_CURSOR = Words("cursor", "of the page before")


async def _status(request: web.Request) -> dict[str, Any]:
    """Of the voter this agent is with. Raises NoLeader."""
    try:
        async with asyncio.timeout(_STATUS_S):
            return await mesh_of(request).status()
    except (ConnectionError, TimeoutError) as error:
        raise NoLeader(
            "no_voter",
            f"no voter has answered this agent for {_STATUS_S:.0f} s",
            "ask another agent; see /healthz here",
        ) from error


@routes.get("/api/v1/nodes")
@needs(Permission.READ_MESH)
@Described("Nodes and their cards", answer=NodeList, parameters=(CONSISTENCY, _NODES_LIMIT, _CURSOR))
async def nodes(request: web.Request) -> web.Response:
    """`lease_age_ms`: since the last renewal, known only where this agent is with the leader; else null. `gossip`: what
    this agent sees of the node; `differences` (of all nodes, on every page): where that is not what the log says."""
    most, after = _NODES_LIMIT.read(request), _CURSOR.read(request)
    found, _ = await scan_all(request, "node")
    holds, reading = await scan_all(request, "hold")
    ages = (await _status(request)).get("silence_ms", {})
    page, cursor = page_of(found, after, most, lambda entry: entry[0])
    by_node: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for key, hold in holds:
        by_node.setdefault(key.partition("/")[0], []).append((key, hold))
    views = TwoViews(request.app[API].gossip, [row for _, row in found])
    shown = [
        group_view.node(row, by_node.get(key, [])) | {"lease_age_ms": ages.get(key), "gossip": views.gossip(key)}
        for key, row in page
    ]
    return answer_reading(request, {"nodes": shown, "differences": views.differences, "cursor": cursor}, reading)


async def _pending(request: web.Request) -> AsyncIterator[tuple[dict[str, Any], Reading]]:
    after: int | None = None
    while True:
        wanted: dict[str, Any] = {"status": PENDING, "limit": _PAGE}
        if after is not None:
            wanted["after"] = after
        reading = await read(request, {"groups": wanted})
        (found,) = reading.results
        yield found, reading
        if (after := found["next"]) is None:
            return


@routes.get("/api/v1/queue")
@needs(Permission.READ_GROUPS)
@Described("What waits, and why", answer=Queue, parameters=(CONSISTENCY, _QUEUE_LIMIT, _CURSOR))
async def queue(request: web.Request) -> web.Response:
    """In the order in which the scheduler looks: priority, then submission. Positions count every tenant's groups.
    `recovery`: how many interruptions ended without a person, of the newest groups; on the first page."""
    most, after = _QUEUE_LIMIT.read(request), _CURSOR.read(request)
    waiting: list[tuple[int, int, dict[str, Any]]] = []
    caller = caller_of(request)
    recovery = RecoveryRate(0, 0, 0) if after else await _recovery_of_others(request)
    async for found, page_reading in _pending(request):
        waiting += [
            (-row["priority"], row["submit_idx"], group_view.summary(for_caller(request, row)))
            for row in found["groups"]
        ]
        recovery += recovery_rate(row for row in found["groups"] if caller.sees(row["tenant"]))
        reading = page_reading
    waiting.sort(key=lambda entry: entry[:2])
    places = [(at, entry) for at, entry in enumerate(waiting, start=1) if caller.sees(entry[2]["tenant"])]
    page, cursor = page_of(places, after, most, lambda entry: _queue_place(*entry[1][:2]))
    shown = [summary | {"position": at} for at, (_, _, summary) in page]
    answered = {"queue": shown, "total": len(places), "cursor": cursor, "recovery": None if after else _rate(recovery)}
    return answer_reading(request, answered, reading)


async def _recovery_of_others(request: web.Request) -> RecoveryRate:
    """Of the caller's newest groups that do not wait."""
    wanted: dict[str, Any] = {"status": sorted({*GROUP_STATUSES} - {PENDING}), "limit": _JUDGED}
    if not caller_of(request).sees_all:
        wanted["tenant"] = caller_of(request).tenant
    reading = await read(request, {"groups": wanted})
    (found,) = reading.results
    return recovery_rate(found["groups"])


def _rate(found: RecoveryRate) -> dict[str, Any]:
    rate = None if found.rate is None else round(found.rate, 3)
    counts = {"groups": found.groups, "interruptions": found.interruptions, "recovered": found.recovered}
    return counts | {"rate": rate, "text": found.text}


def _queue_place(less_priority: int, submit_idx: int) -> str:
    return f"{less_priority + _PRIORITY_SPAN:010d}-{submit_idx:016d}"


@routes.get("/api/v1/mesh")
@needs(Permission.READ_MESH)
@Described("Voters, consensus, and the agent that answers", answer=MeshShown)
async def mesh(request: web.Request) -> web.Response:
    """The voters as the one this agent is with sees them. Answered without a quorum too: then it is asked for most."""
    status = await _status(request)
    reads = [{"get": ["meta", "cluster"]}, {"get": ["meta", "pause"]}, {"get": ["meta", "lease_hold"]}]
    found = await mesh_of(request).query(reads, level="stale", timeout_s=_STATUS_S)
    meta, paused, hold = found["results"]
    shown = {
        "cluster_id": meta["cluster_id"] if meta else None,
        "epoch": meta["epoch"] if meta else None,
        "cluster_version": meta["cluster_version"] if meta else None,
        "profile": meta["profile"] if meta else None,
        "created_at": group_view.moment(meta["created_ms"]) if meta else None,
        "voters": meta["voters"] if meta else [],
        "scheduling_paused": group_view.asked(paused) if paused else None,
        "hold": group_view.mesh_hold(hold) if hold and hold["over_ms"] is None else None,
        "consensus": status,
        "agent": request.app[API].health(),
    }
    return answer(request, shown, headers=reading_headers(request, found))
