"""heteroflow mesh ACTION"""

import argparse
import json
from typing import TYPE_CHECKING, Any

from console.cli.cordon import add_reason
from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.times import duration_s
from console.cli.verb import Verb
from console.core.format import coarse, utc_text
from console.core.line import plain
from console.core.mesh_lines import mesh_summary, voter_head, voter_ids, voter_line
from schemas.errors import InvalidInput

if TYPE_CHECKING:
    from console.client import MeshClient

SHOW, PAUSE, RESUME, HOLD, RELEASE, RAISE = ACTIONS = (
    "show",
    "pause-scheduling",
    "resume-scheduling",
    "hold",
    "release",
    "raise-version",
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    what = (
        f"{SHOW}: voters, who leads, and whether scheduling is paused or the mesh is held; "
        f"{PAUSE}: nothing new is placed, what runs goes on; {RESUME}: groups are placed again; "
        f"{HOLD}: for planned work, no node is given up for a while; {RELEASE}: ends a hold early; "
        f"{RAISE}: after an upgrade of all voters, what only the new release knows may be used"
    )
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=what)
    parser.add_argument("--for", dest="lasts", metavar="D", type=duration_s, help="of hold: how long, as 30m")
    add_reason(parser)


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    if args.action == HOLD and args.lasts is None:
        raise InvalidInput("missing_option", "how long the mesh is held is missing", "Add --for 30m.", field="--for")
    if args.action != HOLD and args.lasts is not None:
        raise InvalidInput("wrong_option", f"{args.action} takes no --for", "Leave it out.", field="--for")
    if args.action == SHOW:
        return await _show(args, terminal, client)
    asked: dict[str, Any] = {"reason": args.reason}
    if args.action == HOLD:
        asked["for_s"] = args.lasts
    body = json.dumps(asked).encode() if args.action in (PAUSE, HOLD) else b"{}" if args.action == RAISE else None
    path = "hold" if args.action == RELEASE else args.action
    method = "DELETE" if args.action == RELEASE else "POST"
    answer = await client.write(f"/api/v1/mesh/{path}", new_request_id(), body, method)
    if args.output == "json":
        terminal.json(answer.value)
    else:
        terminal.line(_said(args.action, answer.value))
    return 0


async def _show(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    status = (await client.read("/api/v1/mesh")).value
    if args.output == "json":
        terminal.json(status)
        return 0
    cells = terminal.cells or 100
    voters = [voter_line(status, raft_id, False, cells) for raft_id in voter_ids(status)]
    terminal.lines([plain(shown).strip() for shown in (mesh_summary(status), voter_head(status, cells), *voters)])
    return 0


def _said(action: str, value: dict[str, Any]) -> str:
    if action == PAUSE:
        return "scheduling is paused: nothing new is placed, what runs goes on"
    if action == RAISE:
        return f"the mesh is at cluster version {value['cluster_version']}"
    if action == RESUME:
        return "scheduling goes on"
    if action == HOLD:
        until = utc_text(value["until_at"])
        return f"the mesh is held until {until}: hosts that fall silent keep their tasks and are not given up"
    if not value["left_s"]:
        return "the mesh is not held"
    return f"leases are as usual again; nodes are given up again in {coarse(value['left_s'] * 1000)} at the latest"


VERB = Verb(_add_arguments, _run)
