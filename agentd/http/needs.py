"""What each route needs of its caller, said beside it: `@needs(Permission.READ_GROUPS)` under `@routes.get(...)`.

A route that says nothing is refused when the agent starts, so none is open because it was forgotten."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from schemas.rules.permissions import Permission

Handler = TypeVar("Handler", bound=Callable[..., Any])
PEER_PREFIX = "/mesh/"
_MARK = "_heteroflow_need"


class UndeclaredRoute(Exception):
    """A route without `needs`, or one between agents that anyone could call."""


@dataclass(frozen=True, slots=True)
class Need:
    """peer: only an agent may ask, for itself or for a person whom it names; that person needs `permission` too.
    joining: a host that has no certificate yet, too; the route itself looks at what it brings."""

    permission: Permission
    peer: bool = False
    joining: bool = False


def needs(permission: Permission, peer: bool = False, joining: bool = False) -> Callable[[Handler], Handler]:
    """peer: of the routes under /mesh/, where an agent may ask on behalf of a person."""

    def declare(handler: Handler) -> Handler:
        setattr(handler, _MARK, Need(permission, peer or permission is Permission.PEER, joining))
        return handler

    return declare


def need_of(handler: object) -> Need | None:
    found = getattr(handler, _MARK, None)
    return found if isinstance(found, Need) else None


def check_routes(app: web.Application) -> None:
    """Raises UndeclaredRoute."""
    for route in app.router.routes():
        path = route.resource.canonical if route.resource is not None else "?"
        need = need_of(route.handler)
        if need is None:
            raise UndeclaredRoute(f"{route.method} {path} does not say what it needs: put @needs(...) under its route")
        if need.peer != path.startswith(PEER_PREFIX):
            raise UndeclaredRoute(f"{route.method} {path}: routes under {PEER_PREFIX}, and only those, are for agents")
