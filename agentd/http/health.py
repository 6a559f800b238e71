"""/healthz: whether this agent answers, and how it stands. Open to all, so it tells no names and no addresses."""

from aiohttp import web

from agentd.http.answer import answer
from agentd.http.context import API
from agentd.http.description import Described
from agentd.http.needs import needs
from schemas.api import Health
from schemas.rules.permissions import Permission

routes = web.RouteTableDef()


@routes.get("/healthz")
@needs(Permission.OPEN)
@Described("Whether this agent answers, and how it stands", answer=Health)
async def healthz(request: web.Request) -> web.Response:
    """No token needed, so it tells no names and no addresses."""
    health = request.app[API].health()
    return answer(request, {"status": health["status"], "reasons": health.get("reasons", [])})
