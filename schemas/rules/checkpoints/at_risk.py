"""What would be lost if a group ended now: all its cards computed since the last checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.states import RUNNING
from schemas.task_types import part_of

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class AtRisk:
    """since_ms: the last checkpoint of this attempt, or its start; saved: whether there is such a checkpoint."""

    since_ms: int
    cards: int
    saved: bool = False

    def gpu_hours(self, now_ms: int) -> float:
        return self.cards * max(0, now_ms - self.since_ms) / _HOUR_MS

    def words(self, now_ms: int) -> str:
        return f"{hours_text(self.gpu_hours(now_ms))} GPU-hours lost if killed now"


def hours_text(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.05 else f"{hours:.2f}"


def work_at_risk(group: Mapping[str, Any]) -> AtRisk | None:
    """group: a row of the state. None where nothing runs that could be lost, or where its cards are not known."""
    document = group.get("document")
    since_ms = group.get("runs_since_ms")
    if group.get("status") != RUNNING or not isinstance(document, Mapping) or not isinstance(since_ms, int):
        return None
    cards = part_of(document).get("per_node_gpu")
    if not isinstance(cards, int) or cards < 1:
        return None
    saved = group.get("saved") or {}
    own = saved.get("attempt") == group.get("attempt") and isinstance(saved.get("saved_ms"), int)
    return AtRisk(max(since_ms, saved["saved_ms"]) if own else since_ms, cards * len(group.get("nodes") or ()), own)
