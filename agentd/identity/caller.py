"""Which node calls, by the certificate it shows."""

from collections.abc import Callable

from aiohttp import web

from agentd.telemetry.leader_agent import NODE_HEADER
from mesh.security.wire import Wire
from schemas.errors import Forbidden
from schemas.rules.permissions import NODE, Caller

VOTER = "voter"
"""The role of a caller whose certificate says that it votes."""


def node_by_certificate(wire: Wire) -> Callable[[web.Request], Caller | None]:
    """A node speaks for itself alone. The function raises NotAuthorised and Forbidden."""

    def node_of(request: web.Request) -> Caller | None:
        shown = wire.caller(request)
        if shown is None:
            return None
        node = shown.name.node
        if (claimed := request.headers.get(NODE_HEADER, node)) != node:
            raise Forbidden("other_node", f"{node} speaks for {claimed[:80]!r}", "a node speaks for itself alone")
        return Caller(NODE, node, VOTER if shown.name.voter else "")

    return node_of
