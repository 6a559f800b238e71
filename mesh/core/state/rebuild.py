"""Inference groups, which run until somebody stops them: what ended by itself is built again.

The move back to the queue is made in the command that ended the group, so that no reader ever takes it for over. The
wait grows while it keeps failing, and a node that it failed on is avoided by this group alone: a program that crashes
everywhere must not make others shun the nodes."""

from mesh.core.state.group import Group
from schemas.limits import (
    ATTEMPTS_MAX,
    REBUILD_FIRST_MS,
    REBUILD_LONGEST_MS,
    REBUILD_RECOVERED_MS,
    REBUILDS_IN_A_ROW,
)
from schemas.states import ENDING_FAILED, PENDING, SCHEDULING
from schemas.task_types import ENDLESS


def endless_exit(group: Group) -> str | None:
    """How an exit with success ends the attempt: nobody asked for it."""
    return ENDING_FAILED if group.row["task_type"] in ENDLESS else None


def rebuild(group: Group, source: str) -> None:
    """Of a group that has just failed, from source. A request that no host could take stays failed, and so does what
    does nothing but fail. The failure stays readable until the next attempt is bound."""
    row = group.row
    if row["task_type"] not in ENDLESS or (source == SCHEDULING and row["started_ms"] is None):
        return
    before = row.get("rebuild") or {"total": 0, "in_a_row": 0}
    in_a_row = 1 if _recovered(group) else before["in_a_row"] + 1
    if in_a_row > REBUILDS_IN_A_ROW or group.attempt >= ATTEMPTS_MAX:
        spent = f"{REBUILDS_IN_A_ROW} rebuilds in a row" if in_a_row > REBUILDS_IN_A_ROW else f"{ATTEMPTS_MAX} attempts"
        group.event("rebuilding", f"Not built again: {spent} did not keep it running.", **before)
        return
    wait_ms = min(REBUILD_FIRST_MS << (in_a_row - 1), REBUILD_LONGEST_MS)
    rank = (row["failure"] or {}).get("rank")
    row["rebuild"] = {
        "total": before["total"] + 1,
        "in_a_row": in_a_row,
        "at_ms": group.at_ms,
        "not_before_ms": group.at_ms + wait_ms,
        "avoid": row["nodes"][rank] if rank is not None else None,
    }
    often = f"for the {_th(in_a_row)} time in a row, " if in_a_row > 1 else ""
    text = f"it ended {often}and is built again after {wait_ms // 1000} s"
    group.move(PENDING, f"Built again: {text}.", **row["rebuild"], wait_ms=wait_ms)
    details = {"wait_s": wait_ms // 1000, "in_a_row": in_a_row, "rebuilds": before["total"] + 1}
    row["pending_reason"] = {"code": "rebuilding", "text": text, "details": details}


def _recovered(group: Group) -> bool:
    """Whether this attempt ran long enough to be called healthy."""
    started = [task["started_ms"] for task in group.tasks()]
    if not started or None in started:
        return False
    return bool(group.at_ms - max(started) >= REBUILD_RECOVERED_MS)


def _th(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
