"""heteroflow stop GROUP..."""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.request import new_request_id
from console.cli.result import wait_for_end
from console.cli.terminal import Terminal
from console.cli.verb import Verb

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", nargs="+", help="ids, or names only one group has")
    parser.add_argument("--wait", action="store_true", help="return when every rank is gone")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    # All names are resolved before the first is stopped: a mistyped one stops nothing.
    group_ids = list(dict.fromkeys([await group_id_of(client, reference) for reference in args.group]))
    for group_id in group_ids:
        answer = await client.write(f"/api/v1/task-groups/{group_id}/stop", new_request_id())
        if args.output == "json":
            terminal.json(answer.value)
        else:
            terminal.line(f"{group_id} {answer.value['status']}")
    if args.wait:
        for group_id in group_ids:
            await wait_for_end(client, group_id)
    return 0


VERB = Verb(_add_arguments, _run)
