"""API keys: who am I, log in, make, list and revoke."""

import json
import os
from typing import Any

from aiohttp import web

from agentd.http.answer import answer
from agentd.http.body import read_document, read_nothing
from agentd.http.callers import CALLERS, caller_of
from agentd.http.context import answer_reading, mesh_of, scan_all
from agentd.http.description import Described
from agentd.http.group_view import moment
from agentd.http.needs import needs
from agentd.http.page import page_of
from agentd.http.parameter import CONSISTENCY, Words, limit
from agentd.http.proposing import now_ms, propose_once
from schemas.api import AccessToken, KeyList, KeyRevoked, NewKey, WhoAmI
from schemas.commands import command
from schemas.errors import Conflict, InvalidInput, NotFound
from schemas.ids import segment_refusal
from schemas.key_request import KEY_REQUEST, read_key_request
from schemas.limits import API_KEYS_MAX
from schemas.rules.api_keys import ID_BYTES, SECRET_BYTES, key_digest, key_id, key_refusal, key_text
from schemas.rules.permissions import DEFAULT_TENANT, PERSON, Permission

routes = web.RouteTableDef()

_LIMIT = limit(API_KEYS_MAX, API_KEYS_MAX)
_CURSOR = Words("cursor", "of the page before")
_NO_BODY = {"type": "object", "maxProperties": 0}


@routes.get("/api/v1/whoami")
@needs(Permission.SELF)
@Described("Who the caller is, and what he may do", answer=WhoAmI)
async def whoami(request: web.Request) -> web.Response:
    caller = caller_of(request)
    shown = {
        "kind": caller.kind,
        "name": caller.name,
        "role": caller.role,
        "tenant": caller.tenant,
        "key_id": caller.key or None,
        "scopes": None if caller.scopes is None else sorted(caller.scopes),
        "permissions": [str(item) for item in Permission if item is not Permission.OPEN and caller.may(item)],
        "sees_all_tenants": caller.sees_all,
        "expires_at": moment(caller.expires_ms),
    }
    return answer(request, shown)


@routes.post("/api/v1/login")
@needs(Permission.SELF)
@Described("Exchange an API key for a short-lived token", answer=AccessToken, body=_NO_BODY)
async def login(request: web.Request) -> web.Response:
    """A token of a quarter of an hour for the API key that the request carries."""
    await read_nothing(request)
    caller, callers = caller_of(request), request.app[CALLERS]
    if caller.kind != PERSON:
        raise InvalidInput(
            "no_api_key",
            "only an API key is exchanged for a token",
            "make one: heteroflow key create NAME --role member",
        )
    if request.headers["Authorization"].count(".") == 2:
        # Else a token that leaked once would renew itself for ever.
        raise InvalidInput("no_api_key", "a token is not exchanged for another one", "send the API key itself")
    token, until_ms = await callers.tokens.issue(mesh_of(request), caller.key, caller.expires_ms)
    return answer(request, {"token": token, "token_type": "Bearer", "expires_at": moment(until_ms)})


@routes.get("/api/v1/keys")
@needs(Permission.MANAGE_KEYS)
@Described("API keys, the revoked and expired ones too", answer=KeyList, parameters=(CONSISTENCY, _LIMIT, _CURSOR))
async def list_keys(request: web.Request) -> web.Response:
    most, after = _LIMIT.read(request), _CURSOR.read(request)
    rows, reading = await scan_all(request, "api_key")
    now = now_ms()
    page, cursor = page_of(rows, after, most, lambda entry: entry[0])
    shown = {"keys": [_shown(key, row, now) for key, row in page], "cursor": cursor}
    return answer_reading(request, shown, reading)


@routes.post("/api/v1/keys")
@needs(Permission.MANAGE_KEYS)
@Described("Make an API key", answer=NewKey, statuses=(201,), body=KEY_REQUEST, once=True)
async def make_key(request: web.Request) -> web.Response:
    """The only answer that holds the key itself."""
    body = await read_document(request, 4096)
    fields = _checked(body)
    made_id = key_id(os.urandom(ID_BYTES))
    text = key_text(made_id, os.urandom(SECRET_BYTES))
    digested = json.dumps(body, sort_keys=True).encode()
    data = await propose_once(request, command("PutKey", key_id=made_id, sha256=key_digest(text), **fields), digested)
    if data["key_id"] != made_id:
        raise Conflict(
            "key_was_made",
            f"this request made key {data['key_id']} before, and the answer that held it was lost",
            f"revoke it (heteroflow key revoke {data['key_id']}) and make another",
        )
    request.app[CALLERS].book.forget()
    shown = {"key_id": made_id, "key": text, **fields, "expires_at": moment(fields["expires_ms"])}
    del shown["expires_ms"]
    return answer(request, shown, 201)


@routes.delete("/api/v1/keys/{key_id}")
@needs(Permission.MANAGE_KEYS)
@Described("Revoke an API key", answer=KeyRevoked, body=_NO_BODY, once=True)
async def revoke(request: web.Request) -> web.Response:
    await read_nothing(request)
    wanted = request.match_info["key_id"]
    if segment_refusal(wanted) is not None:
        raise NotFound("no_such_key", f"there is no API key {wanted[:80]!r}", "heteroflow key ls lists them")
    data = await propose_once(request, command("RevokeKey", key_id=wanted), f"revoke {wanted}".encode())
    request.app[CALLERS].book.forget()
    return answer(request, {"key_id": wanted, "name": data["name"], "revoked": True})


def _shown(key: str, row: dict[str, Any], now: int) -> dict[str, Any]:
    refusal = key_refusal(row, now)
    return {
        "key_id": key,
        "name": row["name"],
        "role": row["role"],
        "tenant": row["tenant"],
        "scopes": row["scopes"],
        "state": "good" if refusal is None else "revoked" if row["revoked_ms"] is not None else "expired",
        "made_at": moment(row["made_ms"]),
        "made_by": row["made_by"],
        "expires_at": moment(row["expires_ms"]),
        "revoked_at": moment(row["revoked_ms"]),
        "revoked_by": row["revoked_by"],
    }


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of PutKey. Raises InvalidInput."""
    fields = read_key_request(body)
    expires_in_s, scopes = fields.pop("expires_in_s", None), fields.get("scopes")
    fields |= {
        "tenant": fields.get("tenant", DEFAULT_TENANT),
        "scopes": None if scopes is None else sorted(set(scopes)),
        "expires_ms": None if expires_in_s is None else now_ms() + expires_in_s * 1000,
    }
    return fields
