"""heteroflow drain NODE"""

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from console.cli.cordon import add_reason, path_of
from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.times import duration_s
from console.cli.verb import Verb
from console.core.format import utc_text
from console.core.service_text import drain_text
from schemas.states import DRAIN_MODES

if TYPE_CHECKING:
    from console.client import MeshClient

_LOOK_S = 1.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node_id", metavar="NODE", help="as `heteroflow nodes` lists it")
    parser.add_argument(
        "--deadline", metavar="D", type=duration_s, default=1800, help="how long groups may run on there (30m)"
    )
    parser.add_argument(
        "--mode",
        choices=DRAIN_MODES,
        default="wait",
        help="wait: groups may finish, what runs at the deadline is moved; move: all are moved at once",
    )
    add_reason(parser)
    parser.add_argument("--wait", action="store_true", help="return when the node is empty")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    body = json.dumps({"mode": args.mode, "deadline_s": args.deadline, "reason": args.reason}).encode()
    answer = await client.write(path_of(args.node_id, "drain"), new_request_id(), body)
    if args.output == "json":
        terminal.json(answer.value)
    else:
        many = answer.value["groups"]
        groups = f"{many} group{'' if many == 1 else 's'}"
        what = (
            "moved now" if args.mode == "move" else f"moved at {utc_text(answer.value['deadline_at'])} unless finished"
        )
        terminal.line(f"{args.node_id} is drained: {groups} there, {what}")
    return await _until_empty(args, terminal, client) if args.wait else 0


async def _until_empty(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    said = ""
    while True:
        drain = await _drain_of(client, args.node_id)
        if drain is None:
            terminal.note(f"the drain of {args.node_id} was called off")
            return 1
        if args.output != "json" and (text := drain_text(drain)) != said:
            terminal.line(f"{args.node_id}: {text}")
            said = text
        if drain["done_at"]:
            return 0
        await asyncio.sleep(_LOOK_S)


async def _drain_of(client: "MeshClient", node_id: str) -> dict[str, Any] | None:
    nodes = (await client.read("/api/v1/nodes")).value["nodes"]
    return next((node.get("drain") for node in nodes if node["node_id"] == node_id), None)


VERB = Verb(_add_arguments, _run)
