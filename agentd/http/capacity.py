"""What submit says of a group that the mesh, as it is, could never hold: it is accepted, and waits until nodes join."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from agentd.http.context import mesh_of
from schemas.errors import Finding, HeteroFlowError
from schemas.task_types import shown_shape, type_of

_PAGE_MAX = 1000


async def capacity_warnings(request: web.Request, document: Mapping[str, Any]) -> list[dict[str, str]]:
    """At most one. Reads no more nodes than can hold the group; says nothing where they cannot be read."""
    shape = shown_shape(document)
    wanted, cards, types = shape["n_nodes"], shape["per_node_gpu"], shape["gpu_type"]
    fitting = seen = 0
    after = ""
    try:
        while True:
            page = min(_PAGE_MAX, wanted - fitting + 8)
            found = await mesh_of(request).query([{"scan": ["node", "", after, page]}], level="stale")
            (rows,) = found["results"]
            fitting += sum(_could_hold(row, cards, types) for _, row in rows)
            seen += len(rows)
            if fitting >= wanted:
                return []
            if len(rows) < page:
                break
            after = rows[-1][0]
    except (HeteroFlowError, ConnectionError, TimeoutError):
        return []
    if not seen:
        return []
    kind = f" {' or '.join(types)}" if types else ""
    field = f"{type_of(document)}.n_nodes"
    asked = f"{wanted} node{'s' * (wanted != 1)} x {cards}{kind} GPU{'s' * (cards != 1)}"
    message = f"needs {asked}, and the whole mesh has {fitting} such nodes"
    hint = "It waits until nodes join; heteroflow queue says so too."
    return [Finding("cluster_too_small", field, f"{field}: {message}", hint).to_dict()]


def _could_hold(row: Mapping[str, Any], cards: int, types: list[str] | None) -> bool:
    """All its cards counted, whoever holds them now."""
    counted = Counter(gpu["type"] for gpu in row["gpus"])
    if not cards and not types:
        return True
    return any(count >= cards for kind, count in counted.items() if types is None or kind in types)
