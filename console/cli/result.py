"""Waiting for a group's end, pushed by the change feed, and what its end means for the exit code."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from console.core.exit_codes import GROUP_FAILED, NOT_FOUND, OK, RESULTS
from console.core.sanitize import sanitize
from schemas.states import RUNNING, TERMINAL
from schemas.task_types import ENDLESS

if TYPE_CHECKING:
    from console.client import MeshClient


async def wait_for_end(client: "MeshClient", group_id: str) -> dict[str, Any] | None:
    """The group's row in its terminal status; None if it was deleted meanwhile."""
    return await wait_for(client, group_id, TERMINAL)


async def wait_for_outcome(client: "MeshClient", group_id: str) -> dict[str, Any] | None:
    """The same; what ends only when somebody stops it is waited for until it runs."""
    return await wait_for(client, group_id, TERMINAL, endless=(*TERMINAL, RUNNING))


async def wait_for(
    client: "MeshClient", group_id: str, statuses: Collection[str], endless: Collection[str] | None = None
) -> dict[str, Any] | None:
    """The group's row in the first of these statuses that it reaches; None if it was deleted meanwhile. endless: those
    of a group that never ends by itself, where they are others."""
    from console.watch_stream import WatchStream

    async for frame in WatchStream(client, group_id).frames():
        for entity, key, row in [*frame.get("snapshot", ()), *frame.get("changes", ())]:
            if entity != "group" or key != group_id:
                continue
            if row is None:
                return None
            wanted = endless if endless is not None and row["task_type"] in ENDLESS else statuses
            if row["status"] in wanted:
                return dict(row)
    return None


def exit_code(row: dict[str, Any] | None) -> int:
    if row is not None and row["status"] == RUNNING:
        return OK
    return NOT_FOUND if row is None else RESULTS.get(row["status"], GROUP_FAILED)


def result_text(group_id: str, row: dict[str, Any] | None) -> str:
    if row is None:
        return f"{group_id} was deleted"
    failure = row.get("failure") if row["status"] == "failed" else None
    because = f": {sanitize(str(failure.get('text') or ''))}" if isinstance(failure, dict) else ""
    return f"{group_id} {row['status']} in attempt {row['attempt']}{because}"
