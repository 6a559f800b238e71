"""Gossip: packets of other members, and what this agent sees of them beside what the log says."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from agentd.core.node_views import differences
from agentd.http.answer import MSGPACK
from agentd.http.body import read_bounded
from agentd.http.callers import CALLER
from agentd.http.context import API, answer_reading, scan_all
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.page import page_of
from agentd.http.parameter import CONSISTENCY, Words, limit
from mesh.gossip import BODY_MAX, PATH, UID_TAG, GossipDriver, MemberView
from schemas.api import GossipList
from schemas.errors import Unavailable
from schemas.limits import NODES_MAX
from schemas.rules.permissions import NODE, Permission
from schemas.strict_json import BodyTooLarge

routes = web.RouteTableDef()
_BINARY = {"type": "string", "format": "binary"}
_LIMIT = limit(NODES_MAX, NODES_MAX)
_CURSOR = Words("cursor", "of the page before")


@routes.post(PATH)
@needs(Permission.PEER)
@Described("Packets of another member, answered with ours", kind=MSGPACK, answer={}, body=_BINARY, body_kind=MSGPACK)
async def exchange(request: web.Request) -> web.Response:
    driver = request.app[API].gossip
    if driver is None:
        raise Unavailable("not_joined", "this agent has not joined a mesh yet", "ask another agent meanwhile")
    caller = request[CALLER]
    try:
        body = await read_bounded(request, BODY_MAX)
    except BodyTooLarge:
        driver.drop("oversized")
        raise
    # Who comes with a certificate speaks for himself alone.
    packets = driver.take(body, caller.name if caller.kind == NODE else None)
    return web.Response(body=packets, content_type=MSGPACK)


@routes.get("/api/v1/gossip")
@needs(Permission.READ_MESH)
@Described("What this agent sees of the others", answer=GossipList, parameters=(CONSISTENCY, _LIMIT, _CURSOR))
async def members(request: web.Request) -> web.Response:
    """Members by name, those too that are not registered; and where that is not what the log says. A hint: nothing in
    the mesh is decided by it."""
    most, after = _LIMIT.read(request), _CURSOR.read(request)
    found, reading = await scan_all(request, "node")
    views = TwoViews(request.app[API].gossip, [row for _, row in found])
    page, cursor = page_of(views.members, after, most, lambda member: member["node_id"])
    return answer_reading(request, {"members": page, "differences": views.differences, "cursor": cursor}, reading)


class TwoViews:
    """members: what gossip says, by name. differences: where the log's rows say something else."""

    def __init__(self, driver: GossipDriver | None, rows: Sequence[Mapping[str, Any]]) -> None:
        seen = driver.members() if driver is not None else []
        self.members = [{"node_id": member.node_id} | _shown(member) for member in seen]
        self._by_name = {member.node_id: member for member in seen}
        compared = {name: _compared(member) for name, member in self._by_name.items()}
        self.differences = differences(rows, compared) if driver is not None else []

    def gossip(self, node_id: str) -> dict[str, Any] | None:
        member = self._by_name.get(node_id)
        return None if member is None else _shown(member)


def _shown(member: MemberView) -> dict[str, Any]:
    return {
        "state": member.state,
        "incarnation": member.incarnation,
        "since_s": member.since_s,
        "addr": member.addr,
        "version": member.version or None,
    }


def _compared(member: MemberView) -> dict[str, Any]:
    return _shown(member) | {"version": member.version, "uid": member.tags.get(UID_TAG, "")}
