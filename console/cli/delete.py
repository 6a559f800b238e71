"""heteroflow delete GROUP..."""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.exit_codes import of_status

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", nargs="+", help="ids, or names only one group has")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    """One that is refused does not keep the others; the first refusal gives the exit code."""
    from console.client import Refused

    # All names are resolved before the first is deleted: a mistyped one deletes nothing.
    group_ids = list(dict.fromkeys([await group_id_of(client, reference) for reference in args.group]))
    code = 0
    for group_id in group_ids:
        try:
            answer = await client.write(f"/api/v1/task-groups/{group_id}", new_request_id(), method="DELETE")
        except Refused as refused:
            terminal.problem(refused.problem, refused.node)
            code = code or of_status(refused.problem.status)
            continue
        if args.output == "json":
            terminal.json(answer.value)
        else:
            terminal.line(f"{group_id} deleted")
    return code


VERB = Verb(_add_arguments, _run)
