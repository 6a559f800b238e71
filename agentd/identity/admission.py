"""One host that asks to join a mesh with TLS, at the agent that has the mesh CA."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import hdrs, web

from agentd.config import ConfigError, parse_address
from agentd.core.founding import Candidate
from mesh.core.identity.join_token import JoinToken
from mesh.core.identity.node_name import NodeName
from schemas.errors import InvalidInput, NotAuthorised

if TYPE_CHECKING:
    from agentd.identity.ca_desk import CaDesk
    from agentd.identity.service import IdentityService


def given_join_token(request: web.Request) -> JoinToken | None:
    scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return JoinToken.parse(given.strip()) if scheme.lower() == "bearer" else None


def join_token_of(request: web.Request) -> JoinToken:
    """Raises NotAuthorised."""
    token = given_join_token(request)
    if token is None:
        raise NotAuthorised(
            "join_token_needed",
            "a host joins this mesh with a join token, and none was sent",
            "make one on a voter's host (heteroflow-agentd token create) and give it with --token-file",
        )
    return token


@dataclass(frozen=True, slots=True)
class Joiner:
    service: IdentityService
    ca: CaDesk
    token: JoinToken
    candidate: Candidate
    request: bytes

    async def check(self) -> None:
        """Before it may take part in anything. Raises NotAuthorised, Conflict, InvalidInput."""
        await asyncio.to_thread(self.ca.check, self.token, self.candidate.node_id, self.candidate.uid, self.request)

    async def admit(self, voter: bool) -> dict[str, Any]:
        """`{certificate, token}`. Raises NotAuthorised, Conflict, InvalidInput."""
        name = NodeName(self.ca.cluster_id, self.candidate.node_id, voter)
        hosts = hosts_of(self.candidate.api_addr, self.candidate.voter_addr)
        pem = await asyncio.to_thread(self.ca.admit, self.token, self.request, name, self.candidate.uid, hosts)
        return {"certificate": pem.decode(), "token": self.service.mesh_token}


def hosts_of(*addresses: str) -> tuple[str, ...]:
    """Raises InvalidInput."""
    try:
        return tuple(dict.fromkeys(parse_address(address, "address").host for address in addresses))
    except ConfigError as error:
        raise InvalidInput("invalid_body", str(error)) from error
