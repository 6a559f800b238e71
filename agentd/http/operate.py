"""Nodes in and out of service, and the switch that stops the scheduler."""

import json
from typing import Any

from aiohttp import web

from agentd.http.answer import answer
from agentd.http.asked import asked_fields
from agentd.http.body import read_nothing
from agentd.http.callers import caller_of
from agentd.http.description import Described
from agentd.http.group_view import moment
from agentd.http.needs import needs
from agentd.http.proposing import propose_once
from schemas.api import Drained, GivenUp, Held, NodeInService, NodeNamed, Paused, Raised, Released, Window
from schemas.commands import command, command_refusal
from schemas.errors import InvalidInput
from schemas.instants import parse_iso_utc
from schemas.limits import DRAIN_DEADLINE_MAX_S, HOLD_MAX_S, MAINTENANCE_AHEAD_MAX_S, MAINTENANCE_MAX_S, NOTE_MAX
from schemas.rules.permissions import Permission
from schemas.states import DRAIN_MODES, DRAIN_MOVE, DRAIN_WAIT
from schemas.versions import FIRST, SUPPORTED, VERSION_MAX

routes = web.RouteTableDef()
_BODY_MAX = 16 << 10


def _body(required: tuple[str, ...] = (), **fields: dict[str, Any]) -> dict[str, Any]:
    """A map of these fields and a reason, for the description; their defaults are the handler's."""
    reason = {"type": "string", "maxLength": NOTE_MAX, "default": "", "description": "said to everyone who asks why"}
    shape = {"type": "object", "properties": {**fields, "reason": reason}, "additionalProperties": False}
    return {**shape, "required": list(required)} if required else shape


def _seconds(high: int, about: str, low: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "description": about, **more}


def _mode(default: str) -> dict[str, Any]:
    about = "wait: groups may finish until the deadline; move: all are moved at once"
    return {"enum": list(DRAIN_MODES), "default": default, "description": about}


_DEADLINE = "how long groups may run on there"
_FROM = {"type": ["string", "null"], "format": "date-time", "default": None, "description": "UTC; else in_s counts"}
_REASON = _body()
_DRAIN = _body(mode=_mode(DRAIN_WAIT), deadline_s=_seconds(DRAIN_DEADLINE_MAX_S, _DEADLINE, default=1800))
_HOLD = _body(("for_s",), for_s=_seconds(HOLD_MAX_S, "how long, by the leader's clock", low=1))
_VERSION = {
    "type": "object",
    "properties": {"to": {"type": "integer", "minimum": FIRST, "maximum": VERSION_MAX, "default": SUPPORTED}},
    "additionalProperties": False,
}
_WINDOW = _body(
    ("for_s",),
    **{"from": _FROM},
    in_s=_seconds(MAINTENANCE_AHEAD_MAX_S, "from now, by the leader's clock", default=0),
    for_s=_seconds(MAINTENANCE_MAX_S, "how long it lasts", low=1),
    mode=_mode(DRAIN_MOVE),
    deadline_s=_seconds(DRAIN_DEADLINE_MAX_S, _DEADLINE, default=0),
)


@routes.post("/api/v1/nodes/{node_id}/cordon")
@needs(Permission.OPERATE)
@Described("Keep new groups away from a node", answer=NodeInService, body=_REASON, once=True)
async def cordon(request: web.Request) -> web.Response:
    asked = await asked_fields(request, _REASON)
    return answer(request, await _order(request, "CordonNode", **_node(request), **asked))


@routes.post("/api/v1/nodes/{node_id}/uncordon")
@needs(Permission.OPERATE)
@Described("Let groups on a node again, and call off its drain", answer=NodeInService, once=True)
async def uncordon(request: web.Request) -> web.Response:
    await read_nothing(request)
    return answer(request, await _order(request, "UncordonNode", **_node(request)))


@routes.post("/api/v1/nodes/{node_id}/give-up")
@needs(Permission.OPERATE)
@Described("Say that a lost node is gone for good", answer=GivenUp, body=_REASON, once=True)
async def give_up(request: web.Request) -> web.Response:
    """Ranks with `on_isolation: keep` there count as gone from now on; their groups go on elsewhere, or end."""
    asked = await asked_fields(request, _REASON)
    return answer(request, await _order(request, "GiveUpNode", **_node(request), **asked))


@routes.post("/api/v1/nodes/{node_id}/drain")
@needs(Permission.OPERATE)
@Described("Empty a node", answer=Drained, body=_DRAIN, once=True)
async def drain(request: web.Request) -> web.Response:
    asked = await asked_fields(request, _DRAIN)
    data = await _order(request, "DrainNode", **_node(request), **asked)
    deadline_ms = data.pop("deadline_ms")
    return answer(request, data | {"deadline_at": moment(deadline_ms)})


@routes.post("/api/v1/nodes/{node_id}/maintenance")
@needs(Permission.OPERATE)
@Described("Plan a time out of service for a node", answer=Window, body=_WINDOW, once=True)
async def maintenance(request: web.Request) -> web.Response:
    """Begins at `from` (ISO-8601), or `in_s` from now, which is now where neither is given."""
    asked = await asked_fields(request, _WINDOW)
    from_ms = _instant(asked.pop("from"), "from")
    data = await _order(request, "PlanMaintenance", **_node(request), from_ms=from_ms, **asked)
    shown = {"node_id": data["node_id"], "from_at": moment(data["from_ms"]), "until_at": moment(data["until_ms"])}
    return answer(request, shown)


@routes.delete("/api/v1/nodes/{node_id}/maintenance")
@needs(Permission.OPERATE)
@Described("Take a maintenance window away", answer=NodeNamed, once=True)
async def cancel_maintenance(request: web.Request) -> web.Response:
    return answer(request, await _order(request, "CancelMaintenance", **_node(request)))


@routes.post("/api/v1/mesh/pause-scheduling")
@needs(Permission.OPERATE)
@Described("Place nothing new until resumed", answer=Paused, body=_REASON, once=True)
async def pause(request: web.Request) -> web.Response:
    return answer(request, await _order(request, "PauseScheduling", **await asked_fields(request, _REASON)))


@routes.post("/api/v1/mesh/resume-scheduling")
@needs(Permission.OPERATE)
@Described("Place groups again", answer=Paused, once=True)
async def resume(request: web.Request) -> web.Response:
    await read_nothing(request)
    return answer(request, await _order(request, "ResumeScheduling"))


@routes.post("/api/v1/mesh/raise-version")
@needs(Permission.OPERATE)
@Described("Take commands of a newer release, once every voter supports it", answer=Raised, body=_VERSION, once=True)
async def raise_version(request: web.Request) -> web.Response:
    """Without `to`: to what the release of this agent knows."""
    asked = await asked_fields(request, _VERSION)
    return answer(request, await _order(request, "RaiseVersion", to=asked["to"]))


@routes.post("/api/v1/mesh/hold")
@needs(Permission.OPERATE)
@Described("Give up no node for a while, and grant longer leases", answer=Held, body=_HOLD, once=True)
async def hold(request: web.Request) -> web.Response:
    data = await _order(request, "HoldMesh", **await asked_fields(request, _HOLD))
    return answer(request, {"until_at": moment(data["until_ms"])})


@routes.delete("/api/v1/mesh/hold")
@needs(Permission.OPERATE)
@Described("Grant usual leases again", answer=Released, once=True)
async def release(request: web.Request) -> web.Response:
    """Leases granted longer stand; nodes are given up again when the last of them has run out."""
    data = await _order(request, "ReleaseHold")
    return answer(request, {"left_s": -(-data["left_ms"] // 1000)})


def _node(request: web.Request) -> dict[str, str]:
    return {"node_id": request.match_info["node_id"]}


async def _order(request: web.Request, name: str, **fields: Any) -> dict[str, Any]:
    proposed = command(name, by=caller_of(request).name, **fields)
    refusal = command_refusal(proposed)
    if refusal is not None:
        raise InvalidInput("invalid_parameter", refusal.message, refusal.hint, refusal.field, refusal.findings)
    return await propose_once(request, proposed, json.dumps([name, fields], sort_keys=True).encode())


def _instant(text: object, field: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_iso_utc(text) if isinstance(text, str) else _refuse(field, text)
    except (ValueError, OverflowError):
        return _refuse(field, text)


def _refuse(field: str, value: object) -> int:
    raise InvalidInput(
        "invalid_parameter", f"{field}={str(value)[:40]!r} is no time", "write it as 2026-12-01T22:00Z", field=field
    )
