"""heteroflow why GROUP"""

import argparse
from typing import TYPE_CHECKING, Any

from console.cli.group_ref import group_id_of
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import age, moment_ms, number, utc_text
from schemas.api import FaultEvent, GroupDetail
from schemas.states import (
    CLAIMED,
    EXITED,
    GONE,
    GROUP_STATUSES,
    PAUSING,
    RECOVERING,
    RUNNING,
    SCHEDULING,
    STARTING,
    STOPPING,
)

if TYPE_CHECKING:
    from console.client import MeshClient

_EVENTS_SHOWN = 5
_RANKS_NAMED = 4
# status -> (what its ranks have yet to be, the statuses of those that are)
_WAITS_FOR: dict[str, tuple[str, frozenset[str]]] = {
    SCHEDULING: ("claimed", frozenset({CLAIMED})),
    STARTING: ("started", frozenset({RUNNING, EXITED})),
    **dict.fromkeys((STOPPING, PAUSING, RECOVERING), ("gone", GONE)),
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_id = await group_id_of(client, args.group)
    answer = await client.read(f"/api/v1/task-groups/{group_id}")
    group = answer.value
    position = await _position(client, group_id) if group["status"] == "pending" else None
    events = await _newest_events(client, group_id)
    if args.output == "json":
        reason = {
            key: group.get(key)
            for key in ("group_id", "name", "status", "pending_reason", "failure", "attempt", "rendezvous")
        }
        terminal.json(reason | {"position": position, "events": events})
        return 0
    status = group["status"]
    terminal.line(f"{group['name']} is {status}: {GROUP_STATUSES.get(status, 'a status this version does not know')}.")
    terminal.lines(_reasons(group, position))
    if events:
        terminal.line("\nlast events:")
        terminal.lines(
            [
                f"  {age(moment_ms(event.get('at')), answer.now_ms):>6} ago  {event.get('text') or event['kind']}"
                for event in events
            ]
        )
    return 0


def _reasons(group: GroupDetail, position: int | None) -> list[str]:
    said: list[str] = []
    if group["status"] == "pending":
        reason = group.get("pending_reason")
        said.append(f"  {reason['text']}" if reason else "  The scheduler has not looked at it yet.")
        details = (reason.get("details") or {}) if reason else {}
        said += [f"    {key}: {text}" for key, value in details.items() if (text := _detail(value))]
        if position is not None:
            said.append(f"  It is number {position} in the queue.")
    if group["status"] == "paused":
        said.append(f"  It goes on from its newest checkpoint: heteroflow resume {group['group_id']}")
    if waited := _waited_for(group):
        said.append(f"  {waited}")
    if limit := group.get("limit"):
        what = "unless it runs by then" if limit["over"] == "wait_over" else "as its deadline_s is over then"
        said.append(f"  It fails at {utc_text(limit.get('at'))}, {what}.")
    meeting = group.get("rendezvous")
    if group["status"] == "running" and meeting and meeting["state"] != "formed":
        said.append(f"  Its ranks have not become one world: {meeting['text']}.")
        said.append("  Nothing is stopped for it; its alert says what to do: heteroflow alerts")
    failure = group.get("failure")
    if failure:
        rank = failure.get("rank")
        said.append(
            f"  {failure.get('text') or 'no text was recorded'}" + (f" (rank {rank} first)" if rank is not None else "")
        )
        if rank is not None:
            said.append(f"  See its last lines: heteroflow logs {group['group_id']} --rank {rank} --tail 50")
    if group.get("restarts"):
        times = "once" if group["restarts"] == 1 else f"{number(group['restarts'])} times"
        said.append(f"  It was put back into the queue {times}, after a node was lost or the infrastructure failed.")
    if group.get("rebuilds"):
        times = "once" if group["rebuilds"] == 1 else f"{number(group['rebuilds'])} times"
        said.append(f"  It ended by itself and was built again {times}.")
    if group.get("drains"):
        times = "once" if group["drains"] == 1 else f"{number(group['drains'])} times"
        said.append(f"  It was moved {times} off nodes that were drained.")
    return said


def _waited_for(group: GroupDetail) -> str:
    """Of a status that ends by itself: which ranks it takes to end it."""
    waits = _WAITS_FOR.get(group["status"])
    if waits is None:
        return ""
    what, over = waits
    late = [f"rank {task['rank']} on {task['node_id']}" for task in group["tasks"] if task["status"] not in over]
    named = ", ".join(late[:_RANKS_NAMED])
    if len(late) > _RANKS_NAMED:
        named += f" and {len(late) - _RANKS_NAMED} more"
    return f"Not {what} yet: {named}. Their hosts: heteroflow nodes" if late else ""


def _detail(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_detail(item)}" for key, item in value.items())
    return ", ".join(map(_detail, value)) if isinstance(value, list) else str(value)


async def _position(client: "MeshClient", group_id: str) -> int | None:
    queue = (await client.read("/api/v1/queue", {"limit": "10000"})).value["queue"]
    return next((row.get("position") for row in queue if row["group_id"] == group_id), None)


async def _newest_events(client: "MeshClient", group_id: str) -> list[FaultEvent]:
    params: dict[str, str] = {}
    newest: list[FaultEvent] = []
    while True:
        page = (await client.read(f"/api/v1/task-groups/{group_id}/fault-events", params)).value
        newest = [*newest, *page["events"]][-_EVENTS_SHOWN:]
        if page.get("cursor") is None:
            return newest
        params["cursor"] = str(page["cursor"])


VERB = Verb(_add_arguments, _run)
