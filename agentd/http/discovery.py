"""The description of this API, served by what it describes. Made anew for who asks: seldom, in 5 ms, and kept it would
be half a megabyte of every agent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from agentd.http.answer import answer
from agentd.http.description import Described
from agentd.http.needs import needs
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()


@dataclass(frozen=True, slots=True)
class Describing:
    make: Callable[[], dict[str, Any]]


DESCRIPTION = web.AppKey("description", Describing)


@routes.get("/api/v1/openapi.json")
@needs(Permission.SELF)
@Described("This description (OpenAPI 3.1)", answer={"type": "object"})
async def description(request: web.Request) -> web.Response:
    return answer(request, request.app[DESCRIPTION].make())
