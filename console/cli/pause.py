"""heteroflow pause GROUP..."""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_order import add_groups, order_each
from console.cli.result import exit_code, result_text, wait_for
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from schemas.states import PAUSED, TERMINAL

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_groups(parser)
    parser.add_argument("--wait", action="store_true", help="return when every rank has saved and is gone")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    code = 0
    for group_id in await order_each("pause", args, terminal, client):
        if args.wait:
            row = await wait_for(client, group_id, {PAUSED, *TERMINAL})
            if args.output != "json":
                terminal.note(result_text(group_id, row))
            if row is None or row["status"] != PAUSED:
                # Somebody stopped it meanwhile: it is not there to be resumed.
                code = code or exit_code(row)
    return code


VERB = Verb(_add_arguments, _run)
