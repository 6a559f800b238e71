"""What this host tells the mesh about itself."""

import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from agentd.config import AgentConfig
from agentd.data_dir import Identity
from agentd.gpu.base import Gpu
from agentd.interfaces import interfaces
from agentd.runtime.base import Runtime
from mesh.client import MeshClient
from schemas.commands import command
from schemas.rules.rendezvous_address import candidates
from schemas.versions import SUPPORTED


def version() -> str:
    try:
        return metadata.version("heteroflow-mesh")
    except metadata.PackageNotFoundError:
        return "0.0.0+source"


def register_command(
    config: AgentConfig, identity: Identity, runtime: Runtime, gpu_backend: str, gpus: Sequence[Gpu]
) -> dict[str, Any]:
    found = offered_addresses(config)
    return command(
        "RegisterNode",
        node_id=identity.node_id,
        uid=identity.uid,
        api_addr=str(config.api_public),
        voter_addr=str(config.voter_public) if identity.role == "voter" else None,
        gpus=[{"uuid": gpu.uuid, "type": gpu.type, "memory_mb": gpu.memory_mb, "index": gpu.index} for gpu in gpus],
        gpu_backend=gpu_backend,
        runtime=runtime.name,
        engine_down=runtime.trouble or None,
        labels=dict(config.labels),
        version=version(),
        supports=SUPPORTED,
        cpus=os.cpu_count() or 1,
        memory_mb=(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20,
        **({"addresses": list(found)} if found else {}),
    )


def offered_addresses(config: AgentConfig) -> tuple[str, ...]:
    """None on a mesh of one machine, where there is nothing to choose."""
    if config.on_loopback and not config.rendezvous_addresses:
        return ()
    carried = interfaces() if not config.rendezvous_addresses else ()
    return candidates(config.rendezvous_addresses, carried, config.api_public.host)


async def agents_of(mesh: MeshClient) -> list[tuple[str, str]]:
    """(node, address of its agent) of all that have registered. Raises HeteroFlowError."""
    found: list[tuple[str, str]] = []
    after = ""
    while True:
        (page,) = (await mesh.query([{"scan": ["node", "", after, 1000]}], level="stale"))["results"]
        if not page:
            return found
        found += [(str(key), str(row["api_addr"])) for key, row in page]
        after = page[-1][0]
