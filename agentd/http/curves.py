"""Curves of a group: read by the host of rank 0, asked for at any node."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web

from agentd.core.curve_points import DEFAULT_POINTS, MOST_POINTS, tag_points
from agentd.http.answer import answer
from agentd.http.callers import on_behalf
from agentd.http.context import (
    answer_reading,
    checked_group_id,
    mesh_of,
    read,
    telemetry_of,
    visible,
)
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import CONSISTENCY, Whole, Words, refused
from agentd.telemetry.curve_files import PROBE_FAILED, CurvesUnreachable
from agentd.telemetry.event_files import EventFiles
from agentd.telemetry.node_telemetry import logs_of
from schemas.api import Curves
from schemas.errors import HeteroFlowError
from schemas.rules.permissions import Permission
from schemas.rules.tfevents.report import curves_report, json_number
from schemas.rules.tfevents.run_state import NO_LOG, RunState
from schemas.states import TERMINAL

routes = web.RouteTableDef()
_REMOTE_S = 12.0
_TAGS_MOST = 1000
_TAG = Words("tag", "only this one; give it again for more", repeats=True, high=4096)
_POINTS = Whole("points", 2, MOST_POINTS, "of each tag, thinned", DEFAULT_POINTS)
_SINCE = Words("since", "Unix seconds: only what was written later", pattern=r"^[0-9]{1,10}(\.[0-9]{1,9})?$")
_FORWARDED = (_TAG, _POINTS, _SINCE)


@routes.get("/api/v1/task-groups/{group_id}/curves")
@needs(Permission.READ_GROUPS)
@Described("Loss and other curves of a group", answer=Curves, parameters=(CONSISTENCY, *_FORWARDED))
async def group_curves(request: web.Request) -> web.Response:
    """Out of the event files, by the host of rank 0."""
    group_id = checked_group_id(request.match_info["group_id"])
    _checked(request)
    reading = await read(request, {"get": ["group", group_id]})
    group = visible(request, group_id, reading.results[0])
    return answer_reading(request, await _from_host(request, group), reading)


@routes.get("/mesh/v1/curves/{group_id}")
@needs(Permission.READ_GROUPS, peer=True)
@Described("Curves from the files of the host that is asked", answer=Curves, parameters=_FORWARDED)
async def curves_here(request: web.Request) -> web.Response:
    """From the files of this host."""
    group_id = checked_group_id(request.match_info["group_id"])
    found = await mesh_of(request).query([{"get": ["group", group_id]}], level="stale")
    group = visible(request, group_id, found["results"][0])
    return answer(request, await _from_files(request, group))


async def _from_host(request: web.Request, group: Mapping[str, Any]) -> dict[str, Any]:
    telemetry = telemetry_of(request)
    if not group["nodes"]:
        return _empty(group, None, NO_LOG, "the group has not been placed on any host yet")
    node = str(group["nodes"][0])
    if node == telemetry.node_id:
        return await _from_files(request, group)
    try:
        return await _remote(request, await telemetry.leader.address(node), str(group["group_id"]))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, HeteroFlowError) as error:
        why = str(error) or type(error).__name__
        return _empty(group, node, PROBE_FAILED, f"node {node}, which has the files, does not answer ({why})")


async def _remote(request: web.Request, address: str, group_id: str) -> dict[str, Any]:
    names = [parameter.name for parameter in _FORWARDED]
    parameters = [(name, value) for name in names for value in request.query.getall(name, ())]
    timeout = aiohttp.ClientTimeout(total=_REMOTE_S, sock_connect=3.0)
    url = f"http://{address}/mesh/v1/curves/{group_id}"
    session, headers = telemetry_of(request).leader.session, on_behalf(request)
    async with session.get(url, params=parameters, headers=headers, timeout=timeout) as response:
        if response.status != 200:
            raise ValueError(f"its agent answered {response.status}")
        value = json.loads(await response.read())
        if not isinstance(value, dict):
            raise ValueError("its agent answered no object")
        return value


async def _from_files(request: web.Request, group: Mapping[str, Any]) -> dict[str, Any]:
    telemetry, (tags, points, since) = telemetry_of(request), _checked(request)
    node, logs = telemetry.node_id, logs_of(dict(group))
    if logs.root is None:
        return _empty(group, node, NO_LOG, "the group has no checkpoint_path, so it was given no HETEROFLOW_TB_DIR")

    def look(files: EventFiles, state: RunState) -> dict[str, Any]:
        last = state.last
        return _empty(group, node, state.state, state.text) | {
            "loss_tag": state.loss,
            "last": None
            if last is None
            else {
                "step": last.step,
                "loss": json_number(last.value),
                "wall": json_number(last.wall),
                "age_s": json_number(state.age_s if state.age_s is not None else 0.0),
            },
            "summary": curves_report(files.tree, state)["tags"],
            "tags": tag_points(files.tree, points, tags, since),
        }

    try:
        async with asyncio.timeout(_REMOTE_S):
            return await telemetry.curves.read(logs, group["status"] not in TERMINAL, look)
    except (CurvesUnreachable, TimeoutError) as error:
        return _empty(group, node, PROBE_FAILED, str(error) or f"{logs.root} is still being read; ask again")


def _empty(group: Mapping[str, Any], node: str | None, state: str, text: str) -> dict[str, Any]:
    return {
        "group_id": group["group_id"],
        "attempt": group["attempt"],
        "node_id": node,
        "state": state,
        "text": text,
        "loss_tag": None,
        "last": None,
        "summary": {},
        "tags": {},
    }


def _checked(request: web.Request) -> tuple[list[str], int, float | None]:
    """`(tags, points, since)`. Raises InvalidInput."""
    tags = _TAG.read_all(request)
    if len(tags) > _TAGS_MOST:
        raise refused(_TAG.name, f"{len(tags)} tags", "at once are too many", "ask for all")
    points, since = _POINTS.read(request), _SINCE.read(request)
    if not since:
        return tags, points, None
    try:
        return tags, points, float(since)
    except ValueError as error:
        raise refused(_SINCE.name, since, "is no moment", "give Unix seconds") from error
