"""heteroflow stop GROUP..."""

import argparse
from typing import TYPE_CHECKING

from console.cli.group_order import add_groups, order_each
from console.cli.result import wait_for_end
from console.cli.terminal import Terminal
from console.cli.verb import Verb

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_groups(parser)
    parser.add_argument("--wait", action="store_true", help="return when every rank is gone")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_ids = await order_each("stop", args, terminal, client)
    if args.wait:
        for group_id in group_ids:
            await wait_for_end(client, group_id)
    return 0


VERB = Verb(_add_arguments, _run)
