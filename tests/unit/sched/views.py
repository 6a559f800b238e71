"""Short ways to write what the scheduler sees."""

from typing import Any

from mesh.core.sched.view import Card, MeshView, NodeView, Waiting


def node(name: str, total: int = 4, free: int | None = None, kind: str = "H100", **over: Any) -> NodeView:
    cards = tuple(Card(f"{name}-{at}", kind, at) for at in range(total))
    left = cards[total - free :] if free is not None and free < total else cards
    if free == 0:
        left = ()
    return NodeView(node_id=name, ready=over.pop("ready", True), cards=cards, free=left, **over)


def group(name: str, n_nodes: int = 1, per_node_gpu: int = 1, idx: int = 1, **over: Any) -> Waiting:
    return Waiting(
        group_id=f"tg-{name}",
        name=name,
        priority=over.pop("priority", 0),
        submit_idx=idx,
        attempt=over.pop("attempt", 0),
        n_nodes=n_nodes,
        per_node_gpu=per_node_gpu,
        **over,
    )


def mesh(*things: NodeView | Waiting) -> MeshView:
    return MeshView(
        tuple(thing for thing in things if isinstance(thing, NodeView)),
        tuple(thing for thing in things if isinstance(thing, Waiting)),
    )
