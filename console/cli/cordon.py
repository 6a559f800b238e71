"""heteroflow cordon NODE..."""

import argparse
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.verb import Verb

if TYPE_CHECKING:
    from console.client import MeshClient


def path_of(node_id: str, action: str) -> str:
    return f"/api/v1/nodes/{quote(node_id, safe='')}/{action}"


def add_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", metavar="TEXT", default="", help="said to everyone who asks why")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node_id", metavar="NODE", nargs="+", help="as `heteroflow nodes` lists it")
    add_reason(parser)


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    body = json.dumps({"reason": args.reason}).encode()
    for node_id in args.node_id:
        answer = await client.write(path_of(node_id, "cordon"), new_request_id(), body)
        if args.output == "json":
            terminal.json(answer.value)
        else:
            terminal.line(f"{node_id} is cordoned: nothing new starts there, what runs goes on")
    return 0


VERB = Verb(_add_arguments, _run)
