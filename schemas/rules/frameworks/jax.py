"""JAX: one process a node, which owns the node's cards. `jax.distributed.initialize()` reads the coordinator by itself;
the counts are given as texts that the script passes on."""

from schemas.rules.frameworks.parameters import Parameters
from schemas.rules.frameworks.placement import Given, Placement, host_port


def given(parameters: Parameters, placement: Placement) -> Given:
    return Given(
        env={
            "JAX_COORDINATOR_ADDRESS": host_port(placement.master_addr, placement.port(0)),
            "JAX_NUM_PROCESSES": str(placement.nodes),
            "JAX_PROCESS_ID": str(placement.rank),
        }
    )
