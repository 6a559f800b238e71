"""What stop, pause and resume share: one order for each of several groups."""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.core.format import utc_text

if TYPE_CHECKING:
    from console.client import MeshClient


def add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", nargs="+", help="ids, or names only one group has")


async def order_each(
    action: str, args: argparse.Namespace, terminal: Terminal, client: "MeshClient", body: bytes | None = None
) -> list[str]:
    """Their ids. All names are resolved before the first is ordered: a mistyped one changes nothing."""
    group_ids = list(dict.fromkeys([await group_id_of(client, reference) for reference in args.group]))
    for group_id in group_ids:
        answer = await client.write(f"/api/v1/task-groups/{group_id}/{action}", new_request_id(), body)
        if args.output == "json":
            terminal.json(answer.value)
        elif until := answer.value.get("deadline_at"):
            terminal.line(f"{group_id} {answer.value['status']} until its next checkpoint, or {utc_text(until)}")
        else:
            terminal.line(f"{group_id} {answer.value['status']}")
    return group_ids
