"""`/mesh/v1` routes of certificates. Those of the CA are answered by the agent that has it alone."""

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from agentd.http.answer import answer
from agentd.http.body import read_bounded, read_document
from agentd.http.callers import caller_of
from agentd.http.context import API
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.parameter import Whole
from agentd.identity.caller import VOTER
from agentd.identity.paths import AUTHORITIES_PATH, CA_PATH, RENEW_PATH, REVOCATIONS_PATH, REVOKE_PATH, TOKENS_PATH
from mesh.security.node_certificate import BadCertificate
from schemas.errors import Conflict, Forbidden, InvalidInput, NotFound
from schemas.lexemes import Number
from schemas.rules.permissions import Permission

if TYPE_CHECKING:
    from agentd.identity.ca_desk import CaDesk
    from agentd.identity.service import IdentityService

HAVE = Whole("have", 0, (1 << 53) - 1, "the number of the newest statement that the caller believes", 0)
_LIST_MAX = 4 << 20
_STATEMENT_MAX = 128 << 10
_PEM = "application/x-pem-file"
_PEM_TEXT = {"type": "string"}
_CERTIFICATE = {"type": "object", "properties": {"certificate": {"type": "string"}}, "required": ["certificate"]}
_RENEWAL = {
    "type": "object",
    "properties": {
        "request": {"type": "string"},
        "hosts": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 253}, "maxItems": 8},
    },
    "required": ["request", "hosts"],
}
_NEW_TOKEN = {
    "type": "object",
    "properties": {"uses": {"type": "integer"}, "life_s": {"type": "integer"}},
    "required": ["uses", "life_s"],
}
_NODE = {"type": "object", "properties": {"node": {"type": "string"}}, "required": ["node"]}
routes = web.RouteTableDef()


@routes.get(CA_PATH)
@needs(Permission.PEER, joining=True)
@Described("The certificate of the mesh CA", answer=_PEM_TEXT, kind=_PEM, problems=(404, 409))
async def ca(request: web.Request) -> web.Response:
    """Public: whoever asks compares it with the fingerprint it brought."""
    service = _service(request)
    if not service.tls.ca:
        raise NotFound("not_joined", "this agent has not joined a mesh yet", "ask the agent that said --bootstrap")
    return web.Response(body=service.tls.ca, content_type=_PEM)


@routes.post(RENEW_PATH)
@needs(Permission.PEER)
@Described("A new certificate for the caller", answer=_CERTIFICATE, body=_RENEWAL, problems=(409,))
async def renew(request: web.Request) -> web.Response:
    """`{request, hosts}`: a new certificate for the caller's own name. Of the CA's agent."""
    body = await read_document(request, 8192)
    hosts = body.get("hosts")
    if not isinstance(body.get("request"), str) or not isinstance(hosts, list) or len(hosts) > 8:
        raise InvalidInput("invalid_body", "request must be a signing request, hosts a short list", field="hosts")
    if not all(isinstance(host, str) and 0 < len(host) <= 253 and host.isascii() for host in hosts):
        raise InvalidInput("invalid_body", "hosts must be names and addresses", field="hosts")
    desk, held = _ca(request), _service(request).tls.caller(request)
    assert held is not None
    pem = await asyncio.to_thread(desk.renew, held, body["request"].encode("ascii", "replace"), hosts)
    return answer(request, {"certificate": pem.decode()})


@routes.get(REVOCATIONS_PATH)
@needs(Permission.PEER)
@Described("The list of revoked certificates", answer=_PEM_TEXT, kind=_PEM, problems=(409,))
async def revocations(request: web.Request) -> web.Response:
    return web.Response(body=await asyncio.to_thread(_ca(request).revocations), content_type=_PEM)


@routes.post(REVOCATIONS_PATH)
@needs(Permission.PEER)
@Described("A newer list", answer=None, statuses=(204,), body=_PEM_TEXT, body_kind=_PEM, problems=(409,))
async def take_revocations(request: web.Request) -> web.Response:
    """From whomever: the CA's signature is what counts."""
    try:
        _service(request).take_revocations(await read_bounded(request, _LIST_MAX))
    except BadCertificate as error:
        raise InvalidInput("invalid_list", str(error)) from error
    return web.Response(status=204)


@routes.get(AUTHORITIES_PATH)
@needs(Permission.PEER, joining=True)
@Described(
    "Which CAs this mesh believes, signed",
    answer={"type": "object"},
    parameters=(HAVE,),
    problems=(404, 409),
)
async def authorities(request: web.Request) -> web.Response:
    """Public, as the certificate. `have`: the number of the statement that the caller believes already."""
    service, have = _service(request), HAVE.read(request)
    held = service.tls.caller(request)
    if service.ca is not None and held is not None:
        await asyncio.to_thread(service.ca.heard, held, have)
    if service.trust.statement is None:
        raise NotFound("no_statement", "this mesh has had one CA from the beginning", "take its certificate")
    return answer(request, service.trust.statement.to_dict())


@routes.post(AUTHORITIES_PATH)
@needs(Permission.PEER)
@Described("A newer statement", answer=None, statuses=(204,), body={"type": "object"}, problems=(409,))
async def take_authorities(request: web.Request) -> web.Response:
    """From whomever: the CA's signature is what counts."""
    body = await read_document(request, _STATEMENT_MAX)
    try:
        _service(request).take_authorities(body)
    except BadCertificate as error:
        raise InvalidInput("invalid_statement", str(error)) from error
    return web.Response(status=204)


@routes.get(TOKENS_PATH)
@needs(Permission.PEER)
@Described("Join tokens without their secrets", answer={"type": "object"}, problems=(409,))
async def tokens(request: web.Request) -> web.Response:
    _voter(request)
    return answer(request, {"tokens": await asyncio.to_thread(_ca(request).tokens)})


@routes.post(TOKENS_PATH)
@needs(Permission.PEER)
@Described("A join token", answer={"type": "object"}, statuses=(201,), body=_NEW_TOKEN, problems=(409,))
async def new_token(request: web.Request) -> web.Response:
    """`{uses, life_s}` -> `{token}`"""
    _voter(request)
    body = await read_document(request, 4096)
    uses, life_s = _whole(body, "uses"), _whole(body, "life_s")
    token = await asyncio.to_thread(_ca(request).new_token, uses, life_s)
    return answer(request, {"token": str(token)}, status=201)


@routes.delete(TOKENS_PATH + "/{id}")
@needs(Permission.PEER)
@Described("A join token lets nobody in any more", answer={"type": "object"}, problems=(404, 409))
async def revoke_token(request: web.Request) -> web.Response:
    _voter(request)
    await asyncio.to_thread(_ca(request).revoke_token, request.match_info["id"])
    return answer(request, {"id": request.match_info["id"], "state": "revoked"})


@routes.post(REVOKE_PATH)
@needs(Permission.PEER)
@Described("A node is not of the mesh any more", answer={"type": "object"}, body=_NODE, problems=(404, 409))
async def revoke(request: web.Request) -> web.Response:
    """`{node}`: all its certificates."""
    _voter(request)
    body = await read_document(request, 4096)
    node = body.get("node")
    if not isinstance(node, str):
        raise InvalidInput("invalid_body", "node must be a node's name", field="node")
    await asyncio.to_thread(_ca(request).revoke, node, _service(request).node)
    return answer(request, {"node": node, "state": "revoked"})


def _service(request: web.Request) -> "IdentityService":
    service = request.app[API].identity
    if service is None:
        raise Conflict("no_tls", "this mesh has no certificates: it was founded without TLS", "it stays on loopback")
    return service


def _ca(request: web.Request) -> "CaDesk":
    desk = _service(request).ca
    if desk is None:
        said, founder = _service(request).trust.statement, request.app[API].desk.founder
        if said is not None:
            raise Conflict("no_ca_here", f"the mesh CA is on {said.node}, at {said.address}", "ask that agent")
        where = f"on {founder.node}, at {founder.api_addr}" if founder is not None else "on the founder's host"
        raise Conflict("no_ca_here", f"the mesh CA is {where}", "ask that agent")
    return desk


def _voter(request: web.Request) -> None:
    """Who may let hosts in: a voter, which decides over the mesh as it is; a host that only works may not."""
    _service(request)
    caller = caller_of(request)
    if caller.role != VOTER:
        raise Forbidden("voters_only", f"{caller.name} is no voter of this mesh", "do this on a voter's host")


def _whole(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if isinstance(value, Number) and value.isdigit() and len(value) <= 12:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput("invalid_body", f"{name} must be a whole number", field=name)
    return value
