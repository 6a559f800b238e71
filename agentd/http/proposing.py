"""Changes of the state asked over HTTP: each is done once per request id, whatever is lost on the way, and in the
name of who asks."""

import hashlib
import logging
import os
import time
from typing import Any

from aiohttp import web

from agentd.http.callers import caller_of
from agentd.http.context import API, mesh_of
from schemas.api import HEADER_REQUEST_ID
from schemas.errors import Expired, InvalidInput, error_for
from schemas.ids import make_request_id, request_age_refusal, segment_refusal
from schemas.rules.permissions import PERSON

log = logging.getLogger(__name__)
CLIENT = "api"
_PROPOSE_TIMEOUT_S = 15.0


async def propose_once(
    request: web.Request, proposed: dict[str, Any], digested: bytes, part: str = ""
) -> dict[str, Any]:
    """The outcome's data. digested: what makes two requests the same; part: which change it is of a request that makes
    several. Raises what the state refuses."""
    request_id = request_id_of(request)
    if part:
        request_id = "part-" + hashlib.sha256(f"{request_id} {part}".encode()).hexdigest()[:40]
    caller = caller_of(request)
    # A client of its own for each key: nobody finds another's answer under a request id.
    client = f"key-{caller.key}" if caller.kind == PERSON else CLIENT
    proposed["request"] = {"client": client, "id": request_id, "digest": hashlib.sha256(digested).hexdigest()}
    return await record(request, proposed)


async def record(request: web.Request, proposed: dict[str, Any]) -> dict[str, Any]:
    """In the caller's name, once for each call: of what may stand in the audit twice. Raises what the state refuses."""
    caller = caller_of(request)
    behind: dict[str, Any] = {"kind": caller.kind, "name": caller.name, "node": request.app[API].node_id}
    if caller.kind == PERSON:
        behind["key"] = caller.key
    proposed["caller"] = behind
    outcome = await mesh_of(request).propose(proposed, timeout_s=_PROPOSE_TIMEOUT_S)
    said = {"who": caller.name, "key": caller.key, "what": proposed["t"], "ok": outcome["ok"], "code": outcome["code"]}
    log.info("change", extra=said)
    if not outcome["ok"]:
        raise error_for(outcome["code"], outcome["text"])
    data: dict[str, Any] = outcome["data"]
    return data


def request_id_of(request: web.Request) -> str:
    """The caller's, or a new one where none was given. Raises InvalidInput, Expired."""
    given = request.headers.get(HEADER_REQUEST_ID)
    if given is None:
        return make_request_id(now_ms(), os.urandom(8))
    if (refusal := segment_refusal(given, HEADER_REQUEST_ID)) is not None:
        raise InvalidInput("invalid_idempotency_key", refusal, field=HEADER_REQUEST_ID)
    if (refusal := request_age_refusal(given, now_ms())) is not None:
        raise Expired("request_expired", refusal, "make a new key for a new request", field=HEADER_REQUEST_ID)
    return given


def now_ms() -> int:
    return time.time_ns() // 1_000_000
