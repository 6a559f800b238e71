"""heteroflow give-up NODE"""

import argparse
import json
from typing import TYPE_CHECKING

from console.cli.cordon import add_reason, path_of
from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.verb import Verb

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node_id", metavar="NODE", help="a lost one, that is off and stays off")
    add_reason(parser)


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    body = json.dumps({"reason": args.reason}).encode()
    answer = await client.write(path_of(args.node_id, "give-up"), new_request_id(), body)
    if args.output == "json":
        terminal.json(answer.value)
        return 0
    groups = answer.value["groups"]
    went = f"{groups} group{'' if groups == 1 else 's'} had a rank there, which counts as gone now"
    terminal.line(f"{args.node_id} is given up: {went if groups else 'no group waited for it'}")
    return 0


VERB = Verb(_add_arguments, _run)
