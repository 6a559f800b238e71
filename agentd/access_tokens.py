"""Short-lived tokens (JWT, HS256) for API keys. A token names its key and nothing else: role and tenant are read from
the key's row each time, so a token of a key that was revoked opens nothing.

The library of tokens is loaded with the first one: it brings that of certificates along, 9 MB that most agents never
need."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from agentd.key_book import KeyBook
from mesh.client import MeshClient
from schemas.commands import command
from schemas.errors import NotAuthorised
from schemas.limits import SIGNER_TTL_MS, TOKEN_TTL_S
from schemas.rules.api_keys import ID_BYTES, SECRET_BYTES, key_id

_ALGORITHM = "HS256"
_LONGEST = 2_048


class AccessTokens:
    def __init__(self, book: KeyBook, now_s: Callable[[], float] = time.time) -> None:
        self._book, self._now_s = book, now_s

    async def issue(self, mesh: MeshClient, key: str, key_expires_ms: int | None) -> tuple[str, int]:
        """(token, until when in Unix milliseconds). Raises HeteroFlowError."""
        import jwt

        signer_id, secret = await self._signer(mesh)
        now = int(self._now_s())
        until = now + TOKEN_TTL_S
        if key_expires_ms is not None:
            until = min(until, key_expires_ms // 1000)
        claims = {"sub": key, "iat": now, "exp": until}
        return jwt.encode(claims, secret, _ALGORITHM, headers={"kid": signer_id}), until * 1000

    async def read(self, token: str) -> tuple[str, int]:
        """(id of its key, until when in Unix milliseconds). Raises NotAuthorised, Unavailable."""
        import jwt

        if len(token) > _LONGEST:
            raise _bad("it is too long")
        try:
            signer_id = jwt.get_unverified_header(token).get("kid")
            signer = (await self._book.signers(signer_id)).get(signer_id) if isinstance(signer_id, str) else None
            if signer is None:
                raise _bad("it was signed by nobody of this mesh")
            # The algorithm is ours to say, never the token's. Its beginning is not looked at: clocks differ.
            claims: Mapping[str, Any] = jwt.decode(
                token,
                signer["secret"],
                algorithms=[_ALGORITHM],
                options={"require": ["exp", "sub"], "verify_exp": False, "verify_iat": False},
            )
        except jwt.InvalidTokenError as error:
            raise _bad("its signature or form is wrong") from error
        until = claims["exp"]
        if not isinstance(until, int) or isinstance(until, bool):
            raise _bad("its end is no time")
        if self._now_s() >= until:
            raise NotAuthorised("unauthorised", "the token has expired", "log in again: POST /api/v1/login")
        return str(claims["sub"]), until * 1000

    async def _signer(self, mesh: MeshClient) -> tuple[str, bytes]:
        signers = await self._book.signers()
        newest = max(signers, key=lambda name: int(signers[name]["idx"]), default="")
        if newest and self._now_s() * 1000 - signers[newest]["made_ms"] < SIGNER_TTL_MS:
            return newest, signers[newest]["secret"]
        signer_id, secret = key_id(os.urandom(ID_BYTES)), os.urandom(SECRET_BYTES)
        await mesh.propose(command("PutSigner", signer_id=signer_id, secret=secret, after=newest))
        self._book.forget()
        # Whoever was first: theirs or ours.
        signers = await self._book.signers(signer_id)
        newest = max(signers, key=lambda name: int(signers[name]["idx"]))
        return newest, signers[newest]["secret"]


def _bad(why: str) -> NotAuthorised:
    return NotAuthorised("unauthorised", f"the token is no good: {why}", "log in again: POST /api/v1/login")
