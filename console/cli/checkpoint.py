"""heteroflow checkpoint probe DIR --framework F, heteroflow checkpoint ls GROUP"""

import argparse
from typing import TYPE_CHECKING

from console.checkpoint_tree import probe_path
from console.cli.group_ref import group_id_of
from console.cli.options import add_json_option, whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import UNKNOWN, age, byte_text, moment_ms, number
from console.core.sanitize import sanitize
from schemas.api import Checkpoint, Checkpoints
from schemas.errors import InvalidInput, NotFound
from schemas.rules.checkpoints.probe import FRAMEWORKS

if TYPE_CHECKING:
    from console.client import MeshClient

_HEAD = ("REJECTED", "WHY")
_LEDGER_HEAD = ("NAME", "STEP", "ATTEMPT", "SIZE", "SAVED", "TOOK", "AFTER", "NOTE")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "probe: the newest complete checkpoint of a directory; ls: what a group has saved"
    parser.add_argument("action", choices=("probe", "ls"), help=about)
    parser.add_argument("target", metavar="DIR|GROUP", help="a checkpoint directory of this host; a group of the mesh")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="probe: whose rules hold, as in the document")
    parser.add_argument(
        "--world",
        type=whole(1, 1_000_000),
        metavar="N",
        help="probe: how many processes wrote, where the framework does not record it",
    )
    add_json_option(parser)


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    return await _ls(args, terminal, client) if args.action == "ls" else _probe(args, terminal)


def _probe(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.framework is None:
        hint = f"say --framework with one of {', '.join(FRAMEWORKS)}"
        raise InvalidInput("missing_option", "whose rules hold is not known", hint)
    try:
        found = probe_path(args.target, args.framework, args.world)
    except OSError as error:
        said = f"{args.target} cannot be opened: {error.strerror}"
        raise NotFound("no_such_directory", said, "name the directory that checkpoint_path names") from error
    if args.output == "json":
        terminal.json(found.to_dict())
        return 0
    terminal.line(sanitize(found.reason))
    if found.tracker is not None:
        terminal.line(f"its own record says {sanitize(found.tracker)}")
    if found.rejected:
        terminal.line()
        terminal.table(_HEAD, [(sanitize(name), sanitize(why)) for name, why in found.rejected])
    return 0


async def _ls(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_id = await group_id_of(client, args.target)
    answer = await client.read(f"/api/v1/task-groups/{group_id}/checkpoints", {})
    found: Checkpoints = answer.value
    if args.output == "json":
        terminal.json(found)
        return 0
    kept = f", the last {found['keep_last_n']} are kept" if found["keep_last_n"] else ""
    terminal.line(f"{found['checkpoint_path'] or 'no checkpoint_path'}{kept}")
    if risk := found["at_risk"]:
        terminal.line(risk["text"])
    if advice := found.get("advice"):
        if disk := advice["disk"]:
            terminal.line(disk["text"])
        terminal.line(advice["interval"]["text"])
    if found["checkpoints"]:
        terminal.line()
        rows = [_line(item, answer.now_ms) for item in found["checkpoints"]]
        terminal.table(_LEDGER_HEAD, rows, right=("STEP", "ATTEMPT", "SIZE", "TOOK", "AFTER"))
    else:
        terminal.line("no checkpoint of it was seen yet")
    return 0


def _line(item: Checkpoint, now_ms: int) -> tuple[str, ...]:
    saved_ms = moment_ms(item["saved_at"])
    notes = [] if item["complete"] else [f"incomplete: {item['why']}"]
    notes += [f"attempt {one['attempt']} resumed: {one['result'].replace('_', ' ')}" for one in item["restores"]]
    notes += [f"removed {age(moment_ms(item['removed_at']), now_ms)} ago"] if item["removed_at"] else []
    return (
        item["name"],
        number(item["step"]),
        number(item["attempt"]),
        byte_text(item["bytes"]),
        UNKNOWN if saved_ms is None else f"{age(saved_ms, now_ms)} ago",
        _seconds(item["took_s"]),
        _seconds(item["after_s"]),
        "; ".join(notes),
    )


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f} s" if value < 100 else f"{value:,.0f} s"


VERB = Verb(_add_arguments, _run, needs_client=lambda args: args.action == "ls")
