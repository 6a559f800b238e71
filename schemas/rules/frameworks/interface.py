"""Which network interface collectives use: the one that leads to rank 0, which is the one that was found to work.

Left to themselves, Gloo resolves the host's own name and may find 127.0.0.1, and NCCL takes the first interface that it
likes, which may be a bridge for containers.
"""

from schemas.rules.frameworks.placement import Placement


def sockets(placement: Placement) -> dict[str, str]:
    if placement.nodes == 1:
        return {}
    told: dict[str, str] = {}
    if placement.interface:
        # NCCL takes a name as the beginning of one, unless there is a `=` before it; Gloo takes nothing but names.
        told |= {"NCCL_SOCKET_IFNAME": f"={placement.interface}", "GLOO_SOCKET_IFNAME": placement.interface}
    if placement.crosses_networks:
        # No InfiniBand leads there, and NCCL would wait for it.
        told["NCCL_IB_DISABLE"] = "1"
    return told


def backend_hint(placement: Placement) -> dict[str, str]:
    """NCCL would go on by the addresses of the cards, which do not lead there."""
    return {"HETEROFLOW_BACKEND_HINT": "gloo"} if placement.nodes > 1 and placement.crosses_networks else {}
