"""What a running agent does about certificates, put together once it has joined."""

import aiohttp

from agentd.core.founding import Founding
from agentd.http.context import Api
from agentd.node_facts import agents_of
from agentd.telemetry.leader_agent import LeaderAgent
from mesh.client import MeshClient
from schemas.errors import HeteroFlowError


async def look_after_certificate(
    api: Api, founding: Founding, session: aiohttp.ClientSession, mesh: MeshClient, leader: LeaderAgent
) -> None:
    """For ever, in a mesh with TLS; nothing otherwise. The mesh CA is on the founder's host until it is moved."""
    founder = founding.seats[0]

    async def ca_address() -> str:
        """Where its agent registered last; where it was last said to be while the state cannot be asked."""
        said = api.identity.trust.statement if api.identity is not None else None
        node, address = (founder.node, founder.api_addr) if said is None else (said.node, said.address)
        try:
            return await leader.address(node)
        except HeteroFlowError:
            return address

    async def others() -> list[str]:
        return [address for node, address in await agents_of(mesh) if node != api.node_id]

    async def to_ca() -> tuple[aiohttp.ClientSession, str]:
        return session, await ca_address()

    if api.identity is not None:
        api.to_ca = to_ca
        await api.identity.run(session, ca_address, others)
