"""`POST /mesh/v1/join`, answered by every agent."""

from typing import Any

import aiohttp
from aiohttp import hdrs, web

from agentd.core.founding import Candidate
from agentd.http.answer import answer
from agentd.http.body import read_document
from agentd.http.callers import JOINING, caller_of
from agentd.http.context import API, Api
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.identity.admission import Joiner, given_join_token, join_token_of
from agentd.join import JOIN_PATH
from schemas.errors import Conflict, Forbidden, InvalidInput, Unavailable
from schemas.ids import node_id_refusal, segment_refusal
from schemas.rules.permissions import NODE, Permission

routes = web.RouteTableDef()
_FIELDS = ("node_id", "uid", "api_addr", "voter_addr", "cluster_id", "profile")
_BODY = {
    "type": "object",
    "properties": {name: {"type": "string", "maxLength": 300} for name in _FIELDS}
    | {"request": {"type": "string", "description": "a signing request in PEM, where the mesh has TLS"}},
    "required": ["node_id", "uid"],
    "additionalProperties": False,
}
_ANSWER = {
    "type": "object",
    "properties": {
        "state": {"enum": ["waiting", "seated", "member"]},
        "founding": {"type": "object"},
        "have": {"type": "integer"},
        "need": {"type": "integer"},
        "certificate": {"type": "string", "description": "in PEM, where the mesh has TLS"},
        "token": {"type": "string", "description": "the mesh token, with the certificate"},
    },
    "required": ["state"],
}


@routes.post(JOIN_PATH)
@needs(Permission.PEER, joining=True)
@Described("A host asks to be one of this mesh", answer=_ANSWER, body=_BODY, problems=(409,))
async def join(request: web.Request) -> web.Response:
    body = await read_document(request, 8192)
    if unknown := sorted(set(body) - {*_FIELDS, "request"}):
        raise InvalidInput("invalid_body", f"{unknown[0][:80]!r} is no field of a join request", field=unknown[0][:80])
    candidate = Candidate(*(_text(body, name) for name in _FIELDS[:4]))
    for refusal in (node_id_refusal(candidate.node_id), segment_refusal(candidate.uid, "uid")):
        if refusal is not None:
            raise InvalidInput("invalid_body", refusal)
    api = request.app[API]
    caller = caller_of(request)
    joiner = None
    # A node with a join token passes on what a joiner said to it.
    if api.identity is not None and (caller is JOINING or given_join_token(request) is not None):
        token = join_token_of(request)
        if api.identity.ca is None:
            return await _ask_ca(request, api, body)
        joiner = Joiner(api.identity, api.identity.ca, token, candidate, _request(body))
        await joiner.check()
    elif caller.kind == NODE and caller.name != candidate.node_id:
        raise Forbidden("other_node", f"{caller.name} asks for {candidate.node_id}", "a node speaks for itself alone")
    found = api.desk.hear(candidate, _text(body, "cluster_id"), _text(body, "profile"))
    if found["state"] == "member" and api.mesh is not None:
        await _refuse_taken_name(api.mesh, candidate)
    if joiner is not None and found["state"] != "waiting":
        found |= await joiner.admit(voter=found["state"] == "seated")
    return answer(request, found)


async def _ask_ca(request: web.Request, api: Api, body: dict[str, Any]) -> web.Response:
    """Only the host that has the mesh CA can let a host in; this agent passes the question on."""
    if api.to_ca is None:
        raise Unavailable("not_joined", "this agent is itself waiting to join", "ask the agent that said --bootstrap")
    session, address = await api.to_ca()
    headers = {hdrs.AUTHORIZATION: request.headers[hdrs.AUTHORIZATION]}
    timeout = aiohttp.ClientTimeout(total=4.0, sock_connect=2.0)
    try:
        url = f"http://{address}{JOIN_PATH}"
        async with session.post(url, json=body, headers=headers, timeout=timeout) as answered:
            raw = await answered.read()
            return web.Response(body=raw, status=answered.status, content_type=answered.content_type)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unavailable(
            "ca_unreachable",
            f"the agent with the mesh CA, at {address}, does not answer ({error or type(error).__name__})",
            "hosts can join once it is back; everything else goes on",
        ) from error


def _request(body: dict[str, Any]) -> bytes:
    text = body.get("request")
    if not isinstance(text, str) or not text.isascii():
        raise InvalidInput("invalid_body", "request must be a signing request in PEM", field="request")
    return text.encode()


async def _refuse_taken_name(mesh: Any, candidate: Candidate) -> None:
    """Early and friendly; RegisterNode refuses it again, and there it is decided."""
    found = await mesh.query([{"get": ["node", candidate.node_id]}])
    (row,) = found["results"]
    if row is not None and row["uid"] != candidate.uid and row["state"] != "lost":
        raise Conflict(
            "node_name_taken",
            f"the name {candidate.node_id} belongs to another host of this mesh, at {row['api_addr']}",
            "start this agent with another --name, or stop that host first",
        )


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str) or len(value) > 300:
        raise InvalidInput("invalid_body", f"{name} must be short text", field=name)
    return value
