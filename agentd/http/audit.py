"""`/audit`: who changed what, when, through which node, and how it ended; newest first."""

from typing import Any

from aiohttp import web

from agentd.http.context import answer_reading, read
from agentd.http.description import Described
from agentd.http.group_view import moment
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY, Whole, limit
from schemas.api import Audit
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()
_LIMIT = limit(1000, 100)
_CURSOR = Whole("cursor", 1, 10**12 - 1, "of the page before: entries with a lower number")


@routes.get("/api/v1/audit")
@needs(Permission.READ_AUDIT)
@Described("Who changed what, newest first", answer=Audit, parameters=(CONSISTENCY, _LIMIT, _CURSOR))
async def audit(request: web.Request) -> web.Response:
    """Every change that somebody asked for, refused ones too. What agents do among themselves stands in the timeline of
    the group."""
    most, before = _LIMIT.read(request), _CURSOR.read(request)
    reading = await read(request, {"get": ["audit_span", "span"]})
    span = reading.results[0] or {"first": 1, "next": 1}
    end = min(before if before > 0 else span["next"], span["next"])
    start = max(span["first"], end - most, 1)
    if start >= end:
        return answer_reading(request, {"entries": [], "cursor": None}, reading)
    reading = await read(request, {"scan": ["audit", "", f"{start - 1:012d}", end - start]})
    (rows,) = reading.results
    entries = [_shown(key, row) for key, row in reversed(rows) if int(key) < end]
    cursor = start if start > span["first"] else None
    return answer_reading(request, {"entries": entries, "cursor": cursor}, reading)


def _shown(key: str, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "number": int(key),
        "at": moment(row["at_ms"]),
        "who": row["who"],
        "kind": row["kind"],
        "key_id": row["key"],
        "node_id": row["node"],
        "what": row["what"],
        "target": row["target"],
        "details": row["details"],
        "ok": row["ok"],
        "code": row["code"],
    }
