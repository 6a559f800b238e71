"""The HTTP surface of one agent."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from agentd.http import (
    alerts,
    audit,
    checkpoints,
    cluster,
    curves,
    debug,
    discovery,
    exec_route,
    files,
    gossip,
    gpu_metrics,
    group_batch,
    health,
    identity,
    join_route,
    keys,
    logs,
    metrics,
    operate,
    scaling,
    sleeping,
    task_groups,
    tasks,
    telemetry,
    watch,
)
from agentd.http.answer import same_clothes
from agentd.http.callers import CALLERS, Callers
from agentd.http.context import API, Api
from agentd.http.discovery import DESCRIPTION, Describing
from agentd.http.gate import caller_gate, host_gate, problems, query_gate
from agentd.http.needs import check_routes
from agentd.http.openapi import openapi
from agentd.http.rates import RATES, Rates
from agentd.http.traffic import TRAFFIC, Traffic, counted
from agentd.identity.caller import node_by_certificate
from agentd.key_book import KeyBook
from agentd.node_facts import version
from mesh.security.wire import Wire
from schemas.limits import HTTP_BODY_MAX

MODULES = (
    health,
    identity,
    join_route,
    task_groups,
    group_batch,
    tasks,
    checkpoints,
    scaling,
    sleeping,
    logs,
    exec_route,
    files,
    curves,
    gpu_metrics,
    telemetry,
    alerts,
    cluster,
    debug,
    gossip,
    operate,
    watch,
    keys,
    audit,
    discovery,
    metrics,
)


def api_description() -> dict[str, Any]:
    return openapi((module.routes for module in MODULES), version())


def make_app(api: Api, token: str | Callable[[], str], *own_hosts: str, wire: Wire | None = None) -> web.Application:
    """token: of the mesh; a host that still joins gets it later. own_hosts: names and addresses of this agent. Raises
    UndeclaredRoute."""
    now = token if callable(token) else lambda: token
    node_of = node_by_certificate(wire) if wire is not None and wire.secure else None
    callers = Callers(now, KeyBook(lambda: api.mesh), node_of)
    traffic = Traffic()
    app = web.Application(
        client_max_size=HTTP_BODY_MAX,
        middlewares=[counted(traffic), problems, host_gate(*own_hosts), caller_gate(callers), query_gate],
    )
    app.on_response_prepare.append(same_clothes)
    app[API], app[CALLERS], app[TRAFFIC], app[RATES] = api, callers, traffic, Rates()
    app[DESCRIPTION] = Describing(api_description)
    for module in MODULES:
        app.add_routes(module.routes)
    check_routes(app)
    return app
