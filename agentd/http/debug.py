"""What is needed to find a fault on a host: of any node through any node, for operators, without secrets."""

import asyncio
import json
from typing import Any

import aiohttp
from aiohttp import web

from agentd.debug_report import LOG_TAIL_BYTES, LOG_TAIL_MAX, DebugReport
from agentd.http.answer import answer
from agentd.http.callers import on_behalf
from agentd.http.context import API, mesh_of, telemetry_of
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import Whole
from schemas.api import NodeReport
from schemas.errors import HeteroFlowError, NotFound, Unavailable
from schemas.ids import node_id_refusal
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()
_LOG_BYTES = Whole("log_bytes", 0, LOG_TAIL_MAX, "of the end of each log", LOG_TAIL_BYTES)
_REMOTE_S, _CONNECT_S, _VOTER_S = 20.0, 3.0, 5.0
_ANSWER_MAX = 16 << 20


@routes.get("/api/v1/nodes/{node_id}/debug")
@needs(Permission.OPERATE)
@Described(
    "Versions, configuration and the ends of the logs of one node",
    answer=NodeReport,
    parameters=(_LOG_BYTES,),
    problems=(404,),
)
async def node_debug(request: web.Request) -> web.Response:
    """What is secret is left out by the node itself. `problem` and nothing else where its agent does not answer."""
    node = request.match_info["node_id"]
    if node == request.app[API].node_id:
        return answer(request, await _here(request))
    if node_id_refusal(node) is not None:
        raise NotFound("no_such_node", f"there is no node {node[:80]!r}", "`heteroflow nodes` lists them")
    found = await mesh_of(request).query([{"get": ["node", node]}], level="stale")
    (row,) = found["results"]
    if row is None:
        raise NotFound("no_such_node", f"there is no node {node[:80]!r}", "`heteroflow nodes` lists them")
    return answer(request, await _of_peer(request, node, str(row["api_addr"])))


@routes.get("/mesh/v1/debug")
@needs(Permission.OPERATE, peer=True)
@Described("The same, of the node that is asked", answer=NodeReport, parameters=(_LOG_BYTES,))
async def debug_here(request: web.Request) -> web.Response:
    return answer(request, await _here(request))


async def _here(request: web.Request) -> dict[str, Any]:
    report: DebugReport | None = request.app[API].debug
    if report is None:
        raise Unavailable("not_joined", "this agent has only begun to start", "ask again in a moment")
    shown = await report.make(_LOG_BYTES.read(request))
    mesh = request.app[API].mesh
    try:
        async with asyncio.timeout(_VOTER_S):
            shown["voter"] = await mesh.status() if mesh is not None else {"problem": "it has not joined the mesh yet"}
    except (HeteroFlowError, ConnectionError, TimeoutError) as error:
        shown["voter"] = {"problem": f"no voter answers this agent: {error or 'in time'}"}
    return shown


async def _of_peer(request: web.Request, node: str, address: str) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=_REMOTE_S, sock_connect=_CONNECT_S)
    params = {_LOG_BYTES.name: str(_LOG_BYTES.read(request))}
    session, headers = telemetry_of(request).leader.session, on_behalf(request)
    try:
        url = f"http://{address}/mesh/v1/debug"
        async with session.get(url, params=params, headers=headers, timeout=timeout) as response:
            raw = await response.content.read(_ANSWER_MAX)
            if response.status == 200:
                value: dict[str, Any] = json.loads(raw)
                return value
            why = f"its agent answered {response.status}"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        why = str(error) or type(error).__name__
    return {"node_id": node, "problem": f"the agent at {address} does not answer: {why}"}
