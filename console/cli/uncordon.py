"""heteroflow uncordon NODE..."""

import argparse
from typing import TYPE_CHECKING

from console.cli.cordon import path_of
from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.verb import Verb

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node_id", metavar="NODE", nargs="+", help="as `heteroflow nodes` lists it")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    for node_id in args.node_id:
        answer = await client.write(path_of(node_id, "uncordon"), new_request_id())
        if args.output == "json":
            terminal.json(answer.value)
        else:
            terminal.line(f"{node_id} takes groups again")
    return 0


VERB = Verb(_add_arguments, _run)
