"""What every request passes before a handler sees it: problems instead of tracebacks, the Host list, who asks."""

import ipaddress
import logging
import math
import secrets

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from agentd.config import is_every_address
from agentd.http.answer import error_answer, problem_answer
from agentd.http.callers import CALLER, Callers
from agentd.http.description import description_of
from agentd.http.near_route import route_hint
from agentd.http.needs import need_of
from agentd.http.parameter import check_query
from agentd.http.rates import RATES, TooManyRequests
from schemas.errors import HeteroFlowError, NotAuthorised, Problem
from schemas.rules.permissions import Permission

API_PREFIX = "/api/"
log = logging.getLogger(__name__)

_HINTS = {
    404: ("not_found", "no such route", ""),
    417: ("unknown_expectation", "the Expect header asks for what no agent does", "leave it out"),
    405: ("method_not_allowed", "this route does not take that method", "the Allow header names the methods it takes"),
    413: ("body_too_large", "the body is larger than this route takes", "send at most 192 KiB of document"),
}


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except TooManyRequests as error:
        return problem_answer(request, error.problem, {hdrs.RETRY_AFTER: str(max(math.ceil(error.wait_s), 1))})
    except HeteroFlowError as error:
        return error_answer(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        headers = {str(name): error.headers[name] for name in (hdrs.ALLOW,) if name in error.headers}
        return problem_answer(request, problem_of(error, route_hint(request)), headers)
    except (ConnectionError, TimeoutError) as error:
        if request.transport is None or request.transport.is_closing():
            raise
        return _unexpected(request, error)
    except Exception as error:
        return _unexpected(request, error)


def problem_of(error: web.HTTPException, near: str = "") -> Problem:
    """near: what to call instead of a route that there is not."""
    code, message, hint = _HINTS.get(error.status, ("refused", error.reason, ""))
    return Problem(code, message, near if error.status == 404 else hint, status=error.status)


def _unexpected(request: web.Request, error: Exception) -> web.StreamResponse:
    """The caller gets an id to quote; what happened stays in the log, where secrets of others are not shown to him."""
    mark = secrets.token_hex(4)
    log.error(
        "request failed", extra={"error_id": mark, "method": request.method, "path": request.path}, exc_info=error
    )
    return problem_answer(
        request,
        Problem(
            "internal_error",
            f"this agent failed while answering (error {mark}); nothing is known about what was done",
            f"look for {mark} in D/log/agent.log of this node; repeat writes with the same Idempotency-Key",
            status=500,
        ),
    )


def host_allowed(host_header: str, own_host: str) -> bool:
    """A name in Host that is not ours is a browser led here by a foreign page (DNS rebinding)."""
    name = host_header.rpartition(":")[0] if host_header.rpartition(":")[2].isdigit() else host_header
    name = name.strip("[]").lower()
    if name in ("localhost", own_host.lower()):
        return True
    try:
        # Who listens on every address cannot list them; a page led here comes by name, never by address.
        return ipaddress.ip_address(name).is_loopback or is_every_address(own_host)
    except ValueError:
        return False


def host_gate(*own_hosts: str) -> Middleware:
    """own_hosts: the one to tell people first."""

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall(hdrs.HOST, [])
        if len(hosts) != 1 or not any(host_allowed(hosts[0], own_host) for own_host in own_hosts):
            message = "the Host header does not name this agent"
            hint = f"use the agent's address, {own_hosts[0]}, in the URL"
            return problem_answer(request, Problem("wrong_host", message, hint, status=421))
        return await handler(request)

    return gate


@web.middleware
async def query_gate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Between agents of two releases a parameter that one does not know yet is let pass."""
    said = description_of(request.match_info.handler)
    if said is not None and request.path.startswith(API_PREFIX):
        check_query(request, said.parameters)
    return await handler(request)


def caller_gate(callers: Callers) -> Middleware:
    """A stranger learns nothing, not even which routes there are; who is known may do what the route needs, no more
    often than there is reason to."""

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Without a need only what aiohttp itself answers is left: no such route, no such method.
        need = need_of(request.match_info.handler)
        if need is None or need.permission is not Permission.OPEN:
            try:
                request[CALLER] = await callers.admit(request, need)
                request.app[RATES].came(request[CALLER])
            except NotAuthorised as error:
                request.app[RATES].refused(request)
                return problem_answer(request, error.problem, {hdrs.WWW_AUTHENTICATE: "Bearer"})
        return await handler(request)

    return gate
