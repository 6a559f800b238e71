"""Groups that were to stop after their next checkpoint and will not: their time is over, or they do not run now."""

from typing import Any

from mesh.core.control.view import View
from schemas.commands import command
from schemas.states import RUNNING


def overdue_stops(view: View, now_ms: int, ending: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """now_ms: comparable with the leader's stamps. ending: groups that end by another proposal of this pass."""
    commands = []
    for group_id in sorted(view.stops.keys() - ending):
        status, asked = view.stops[group_id]
        if status != RUNNING or now_ms >= asked["deadline_ms"]:
            why = "which does not run any more" if status != RUNNING else "without a checkpoint in time"
            commands.append(command("StopGroup", group_id=group_id, by=f"{asked['by'][:80]}, {why}"))
    return commands
