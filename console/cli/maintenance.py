"""heteroflow maintenance NODE"""

import argparse
import json
from typing import TYPE_CHECKING

from console.cli.cordon import add_reason, path_of
from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.times import duration_s, moment
from console.cli.verb import Verb
from console.core.format import utc_text
from schemas.errors import InvalidInput
from schemas.states import DRAIN_MODES

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node_id", metavar="NODE", help="as `heteroflow nodes` lists it")
    begins = "now, +2h or 2026-12-01T22:00Z (now)"
    parser.add_argument("--from", dest="begins", metavar="T", type=moment, default={"in_s": 0}, help=begins)
    parser.add_argument("--for", dest="lasts", metavar="D", type=duration_s, help="how long, as 2h")
    parser.add_argument("--mode", choices=DRAIN_MODES, default="move", help="what groups do when it begins (move)")
    parser.add_argument("--deadline", metavar="D", type=duration_s, default=0, help="with --mode wait: as of drain (0)")
    add_reason(parser)
    parser.add_argument("--cancel", action="store_true", help="take the window away again")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    path = path_of(args.node_id, "maintenance")
    if args.cancel:
        answer = await client.write(path, new_request_id(), method="DELETE")
        said = f"{args.node_id} has no maintenance window"
    elif args.lasts is None:
        raise InvalidInput("missing_option", "how long it lasts is missing", "Add --for 2h.", field="--for")
    else:
        how = {"mode": args.mode, "deadline_s": args.deadline, "reason": args.reason}
        body = json.dumps({**args.begins, "for_s": args.lasts, **how}).encode()
        answer = await client.write(path, new_request_id(), body)
        from_at, until_at = utc_text(answer.value["from_at"]), utc_text(answer.value["until_at"])
        said = f"{args.node_id} is out of service from {from_at} until {until_at}"
    if args.output == "json":
        terminal.json(answer.value)
    else:
        terminal.line(said)
    return 0


VERB = Verb(_add_arguments, _run)
