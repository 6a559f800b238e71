"""heteroflow events GROUP"""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import text_or_dash
from schemas.api import FaultEvent

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_id = await group_id_of(client, args.group)
    events: list[FaultEvent] = []
    params: dict[str, str] = {}
    while True:
        page = (await client.read(f"/api/v1/task-groups/{group_id}/fault-events", params)).value
        events += page["events"]
        if page.get("cursor") is None:
            break
        params["cursor"] = str(page["cursor"])
    if args.output == "json":
        terminal.json({"group_id": group_id, "events": events})
    elif not events:
        terminal.note("no events are recorded for this group")
    else:
        terminal.table(
            ("TIME (UTC)", "ATTEMPT", "RANK", "NODE", "KIND", "WHAT"),
            [_row(event) for event in events],
            right=("ATTEMPT", "RANK"),
        )
    return 0


def _row(event: FaultEvent) -> tuple[str, ...]:
    return (
        str(event.get("at") or "").replace("T", " ").removesuffix("Z"),
        text_or_dash(event.get("attempt")),
        text_or_dash(event.get("rank")),
        text_or_dash(event.get("node_id")),
        text_or_dash(event.get("kind")),
        str(event.get("text") or ""),
    )


VERB = Verb(_add_arguments, _run)
