"""heteroflow stop GROUP..."""

import argparse
import json
from typing import TYPE_CHECKING

from console.cli.group_order import add_groups, order_each
from console.cli.options import whole
from console.cli.result import result_text, wait_for_end
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from schemas.limits import STOP_AFTER_MAX_S

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_groups(parser)
    parser.add_argument("--wait", action="store_true", help="return when every rank is gone")
    parser.add_argument(
        "--after-checkpoint", action="store_true", help="let it run until its next checkpoint is there, then stop it"
    )
    parser.add_argument(
        "--within",
        type=whole(1, STOP_AFTER_MAX_S),
        default=3600,
        metavar="S",
        help="with --after-checkpoint: stop it after S seconds without one (%(default)s)",
    )


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    if args.after_checkpoint:
        body = json.dumps({"within_s": args.within}).encode()
        group_ids = await order_each("stop-after-checkpoint", args, terminal, client, body)
    else:
        group_ids = await order_each("stop", args, terminal, client)
    if args.wait:
        for group_id in group_ids:
            row = await wait_for_end(client, group_id)
            if args.output != "json":
                terminal.note(result_text(group_id, row))
    return 0


VERB = Verb(_add_arguments, _run)
