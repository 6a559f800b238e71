"""Who asks: found once for each request, before any handler runs, and again while a stream lasts."""

import hmac
import time
from collections.abc import Callable
from dataclasses import replace

from aiohttp import hdrs, web

from agentd.access_tokens import AccessTokens
from agentd.http.needs import Need
from agentd.key_book import KeyBook
from schemas.errors import Forbidden, NotAuthorised
from schemas.rules.api_keys import id_of_key, key_digest, key_refusal, person_of
from schemas.rules.permissions import PERSON, THE_MESH, Caller, Permission

CALLER = web.RequestKey("caller", Caller)
HEADER_FOR = "X-HeteroFlow-For"
"""Between agents: the id of the API key of the person for whom one asks another, which judges him again."""
JOINING = Caller("joining", "a host that wants to join")
_NO_DIGEST = "0" * 64


class Callers:
    """token: the mesh token now. node_of: the agent at the other end of the connection, by its certificate; where the
    mesh has none, agents show the mesh token."""

    def __init__(
        self,
        token: Callable[[], str],
        book: KeyBook,
        node_of: Callable[[web.Request], Caller | None] | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._token, self._node_of, self._now_s = token, node_of, now_s
        self.book = book
        self.tokens = AccessTokens(book, now_s)

    async def admit(self, request: web.Request, need: Need | None) -> Caller:
        """Who asks, or for whom an agent asks. need: None where there is no such route.

        Raises NotAuthorised, Forbidden, Unavailable."""
        if need is not None and need.peer and self._node_of is not None:
            caller = self._node(self._node_of, request, need)
        else:
            caller = await self._find(request)
        if need is None or caller is JOINING:
            return caller
        if need.peer:
            _require(caller, Permission.PEER)
            if (behind := request.headers.get(HEADER_FOR)) is None:
                return caller
            caller = await self._person(behind)
        _require(caller, need.permission)
        return caller

    def _node(self, node_of: Callable[[web.Request], Caller | None], request: web.Request, need: Need) -> Caller:
        """By certificate alone: no token of a person opens what is between nodes."""
        if (node := node_of(request)) is not None:
            return node
        if need.joining:
            return JOINING
        raise NotAuthorised(
            "node_certificate_needed",
            "this route is for nodes of the mesh, which show a certificate",
            "people use /api/v1; a host gets a certificate by joining: --join HOST:PORT --token-file F",
        )

    async def _find(self, request: web.Request) -> Caller:
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers and self._node_of is not None and (node := self._node_of(request)) is not None:
            return node
        scheme, _, given = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        given = given.strip()
        if scheme.lower() != "bearer" or not given:
            raise _stranger()
        token = self._token()
        if token and _same(given, token):
            return THE_MESH
        if (key_id := id_of_key(given)) is not None:
            row = await self.book.key(key_id)
            if not _same(key_digest(given), row["sha256"] if row is not None else _NO_DIGEST):
                raise _stranger()
            return await self._person(key_id)
        if given.count(".") == 2:
            key_id, until_ms = await self.tokens.read(given)
            person = await self._person(key_id)
            ends = until_ms if person.expires_ms is None else min(until_ms, person.expires_ms)
            return replace(person, expires_ms=ends)
        raise _stranger()

    async def _person(self, key_id: str) -> Caller:
        row = await self.book.key(key_id)
        reason = key_refusal(row, int(self._now_s() * 1000))
        if row is None or reason is not None:
            raise NotAuthorised("unauthorised", str(reason), "ask an admin of the mesh for a new key")
        return person_of(key_id, row)


CALLERS = web.AppKey("callers", Callers)


def caller_of(request: web.Request) -> Caller:
    return request[CALLER]


def on_behalf(request: web.Request) -> dict[str, str]:
    """Headers of what this agent asks another for the caller's sake."""
    caller = caller_of(request)
    return {HEADER_FOR: caller.key} if caller.kind == PERSON else {}


def _require(caller: Caller, permission: Permission) -> None:
    if (refusal := caller.refusal(permission)) is not None:
        raise Forbidden("forbidden", *refusal)


def _stranger() -> NotAuthorised:
    """The same for every way of being unknown."""
    return NotAuthorised(
        "unauthorised",
        "the token is missing or wrong",
        "give an API key, or the mesh token of data-dir/token: --token-file F, over HTTP 'Authorization: Bearer TOKEN'",
    )


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
