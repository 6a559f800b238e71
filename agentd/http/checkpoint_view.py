"""Checkpoints of a group as the API shows them: its ledger, the newest, what is at risk, the stop that waits."""

import time
from collections.abc import Mapping
from typing import Any

from schemas.instants import iso_utc
from schemas.rules.checkpoints.at_risk import work_at_risk
from schemas.states import COMPLETED, RUNNING, STARTING
from schemas.task_types import part_of

Row = Mapping[str, Any]


def ledger(group: Row, rows: list[Row]) -> list[dict[str, Any]]:
    """rows: oldest first, as they were told."""
    own = [row["attempt"] for row in rows if row["complete"]]
    shown = []
    saved_before: int | None = None
    for row in rows:
        saved_ms = row["saved_ms"]
        apart_s = None if saved_ms is None or saved_before is None else max(0, saved_ms - saved_before) / 1000
        shown.append(
            {
                "name": row["pick"],
                "step": row["step"],
                "attempt": row["attempt"] or None,
                "complete": row["complete"],
                "why": row["why"],
                "bytes": row["bytes"],
                "files": row["files"],
                "saved_at": _moment(saved_ms),
                "took_s": None if row["took_ms"] is None else row["took_ms"] / 1000,
                "after_s": apart_s,
                "restores": [{"attempt": at, "result": _restored(group, at, own)} for at in row["restores"]],
                "removed_at": _moment(row["removed_ms"]),
            }
        )
        saved_before = saved_ms if saved_ms is not None else saved_before
    return shown[::-1]


def _restored(group: Row, attempt: int, saved_by: list[int]) -> str:
    """What came of the attempt that resumed from it."""
    if attempt in saved_by:
        return "went_on"
    if attempt == group["attempt"] and group["status"] in (STARTING, RUNNING):
        return "under_way"
    return "completed" if attempt == group["attempt"] and group["status"] == COMPLETED else "ended_before_the_next"


def keep_last_n(group: Row) -> int | None:
    kept = part_of(group["document"]).get("keep_last_n")
    return int(kept) if isinstance(kept, int) else None


def at_risk(group: Row) -> dict[str, Any] | None:
    risk = work_at_risk(group)
    if risk is None:
        return None
    now = time.time_ns() // 1_000_000
    return {
        "gpu_hours": round(risk.gpu_hours(now), 4),
        "since": _moment(risk.since_ms),
        "saved": risk.saved,
        "text": risk.words(now),
    }


def newest(group: Row) -> dict[str, Any] | None:
    saved = group.get("saved")
    if saved is None:
        return None
    return {
        "name": saved["pick"],
        "step": saved["step"],
        "bytes": saved["bytes"],
        "saved_at": _moment(saved["saved_ms"]),
        "attempt": saved["attempt"] or None,
    }


def stop_after(group: Row) -> dict[str, Any] | None:
    asked = group.get("stop_after")
    if asked is None or group["status"] != RUNNING:
        return None
    return {"by": asked["by"], "at": _moment(asked["at_ms"]), "deadline_at": _moment(asked["deadline_ms"])}


def _moment(at_ms: int | None) -> str | None:
    return iso_utc(at_ms) if at_ms else None
