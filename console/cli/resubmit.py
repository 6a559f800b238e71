"""heteroflow resubmit GROUP"""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.request import new_request_id
from console.cli.submit import add_waiting, created
from console.cli.terminal import Terminal
from console.cli.verb import Verb

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")
    add_waiting(parser)


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_id = await group_id_of(client, args.group)
    answer = await client.write(f"/api/v1/task-groups/{group_id}/resubmit", args.request_id or new_request_id())
    return await created(args, terminal, client, answer.value)


VERB = Verb(_add_arguments, _run)
