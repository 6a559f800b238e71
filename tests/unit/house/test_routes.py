"""Every route says what it needs of its caller."""

import pytest
from aiohttp import web

from agentd.http.app import MODULES
from agentd.http.needs import UndeclaredRoute, check_routes, needs
from schemas.rules.permissions import Permission


def app_of(*routes: web.RouteDef) -> web.Application:
    app = web.Application()
    app.add_routes(routes)
    return app


async def forgotten(request: web.Request) -> web.Response:
    return web.Response()


@needs(Permission.SELF)
async def known(request: web.Request) -> web.Response:
    return web.Response()


@needs(Permission.READ_GROUPS, peer=True)
async def between_agents(request: web.Request) -> web.Response:
    return web.Response()


def test_the_agents_own_routes_are_declared():
    app = web.Application()
    for module in MODULES:
        app.add_routes(module.routes)
    check_routes(app)
    assert len(list(app.router.routes())) > 20


@pytest.mark.parametrize(
    ("path", "handler", "said"),
    [
        ("/api/v1/x", forgotten, "does not say what it needs"),
        ("/healthz", forgotten, "does not say what it needs"),
        ("/mesh/v1/x", known, "are for agents"),
        ("/api/v1/x", between_agents, "are for agents"),
    ],
)
def test_a_route_that_says_nothing_or_the_wrong_thing_is_refused_at_the_start(path, handler, said):
    with pytest.raises(UndeclaredRoute, match=said):
        check_routes(app_of(web.get("/api/v1/fine", known), web.get(path, handler)))


def test_declared_ones_are_taken():
    check_routes(app_of(web.get("/api/v1/x", known), web.get("/mesh/v1/x", between_agents)))
