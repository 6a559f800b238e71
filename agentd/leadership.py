"""What a voter's host does beside its own tasks: it writes the first entry of a new mesh, and runs the controllers."""

import asyncio
import logging

from agentd.core.founding import Founding
from mesh.client import VoterClient
from schemas.commands import command
from schemas.errors import HeteroFlowError

log = logging.getLogger(__name__)
_RETRY_S = 1.0


async def init_cluster(mesh: VoterClient, founding: Founding) -> None:
    """Every voter's host may try; the state takes the first and refuses the repeats. Returns once the mesh has its
    name."""
    voters = [{"raft_id": s.raft_id, "node": s.node, "voter_addr": s.voter_addr} for s in founding.seats]
    first_entry = command(
        "InitCluster",
        cluster_id=founding.cluster_id,
        epoch=founding.epoch,
        profile=founding.profile,
        voters=voters,
    )
    while True:
        try:
            found = await mesh.query([{"get": ["meta", "cluster"]}])
            if found["results"][0] is not None:
                return
            if mesh.leader is not None and mesh.leader.me:
                await mesh.propose(first_entry)
                log.info("mesh initialised", extra={"cluster_id": founding.cluster_id})
                continue
        except HeteroFlowError as error:
            log.info("the mesh is not up yet: %s", error)
        await asyncio.sleep(_RETRY_S)
