"""Groups that ran for their deadline_s, or waited for their max_wait_s."""

from typing import Any

from mesh.core.control.view import View
from schemas.commands import command

AT_ONCE = 64


def overdue(view: View, now_ms: int) -> list[dict[str, Any]]:
    """now_ms: comparable with the leader's stamps. The first ones of a pass; the rest have the next one."""
    late = [(group_id, limit) for group_id, limit in view.limits.items() if now_ms >= limit.due_ms]
    return [
        command("FailGroup", group_id=group_id, attempt=limit.attempt, over=limit.over)
        for group_id, limit in late[:AT_ONCE]
    ]
