"""How much a node is to be avoided. Integer arithmetic, so that every voter gets the same number."""

from typing import Any

from mesh.core.state.store import StateStore
from schemas.limits import PENALTY_HALF_LIFE_MS, PENALTY_MAX, PENALTY_UNIT

NO_PENALTY: dict[str, int] = {"score": 0, "at_ms": 0}


def decayed(score: int, since_ms: int) -> int:
    """Halves every half-life, linear in between."""
    if since_ms <= 0 or score <= 0:
        return max(score, 0)
    halvings, rest = divmod(since_ms, PENALTY_HALF_LIFE_MS)
    if halvings >= 40:
        return 0
    whole = score >> halvings
    return whole - whole * rest // (2 * PENALTY_HALF_LIFE_MS)


def raised(penalty: dict[str, Any], now_ms: int) -> dict[str, int]:
    score = decayed(penalty["score"], now_ms - penalty["at_ms"]) + PENALTY_UNIT
    return {"score": min(score, PENALTY_MAX), "at_ms": now_ms}


def penalise(store: StateStore, node_id: str | None, at_ms: int) -> None:
    node = store.get("node", node_id) if node_id is not None else None
    if node is not None:
        node["penalty"] = raised(node["penalty"], at_ms)
        store.put("node", node["node_id"], node)
