"""heteroflow curves GROUP|PATH"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.cli.group_ref import group_id_of
from console.cli.options import add_json_option
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.exit_codes import NO_NODE
from console.core.format import UNKNOWN, clipped, coarse, number
from console.core.sanitize import sanitize
from console.core.sparkline import sparkline
from console.event_tree import read_tree
from schemas.errors import InvalidInput, NotFound
from schemas.rules.tfevents.curve import Curve, Point
from schemas.rules.tfevents.report import curves_report
from schemas.rules.tfevents.run_state import RunState, run_state
from schemas.rules.tfevents.run_tree import NamedCurve, RunTree
from schemas.rules.tfevents.series import Series

if TYPE_CHECKING:
    from console.client import MeshClient
    from schemas.api import Curves
    from schemas.rules.tfevents.report import TagReport

_HEAD = ("TAG", "POINTS", "FIRST STEP", "FIRST", "LAST STEP", "LAST", "NAN", "SUPERSEDED", "CURVE")
_SPARK_CELLS = 32
_POINTS = 400
_NAME_CELLS = 48


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="GROUP|PATH",
        help="a group, or a TensorBoard event file of this host, or a directory with all below it",
    )
    parser.add_argument("--loss", metavar="TAG", help="the tag that is the training loss, where the guess is wrong")
    add_json_option(parser)


def is_path(target: str) -> bool:
    """Anything else is the name or id of a group."""
    return os.sep in target or os.path.lexists(target)


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient | None") -> int:
    if client is not None:
        return await _of_group(args, terminal, client)
    try:
        read = read_tree(Path(args.target))
    except OSError as error:
        raise NotFound("no_such_path", f"{args.target} cannot be read: {error.strerror}", "check the path") from error
    state = run_state(read.tree, time.time(), args.loss)
    if args.output == "json":
        terminal.json(curves_report(read.tree, state))
    else:
        _print(terminal, read.tree, state)
    for problem in [*read.problems, *_damage(read.tree)]:
        terminal.note(sanitize(problem))
    return 0


async def _of_group(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    if args.loss:
        raise InvalidInput("loss_is_set", "--loss is for files", "A group names its loss by training.loss_tag.")
    group_id = await group_id_of(client, args.target)
    found: Curves = (await client.read(f"/api/v1/task-groups/{group_id}/curves", {"points": str(_POINTS)})).value
    if args.output == "json":
        terminal.json({"state": found["state"], "tags": found["summary"]})
    else:
        _print_group(terminal, found)
    return NO_NODE if found["state"] == "probe_failed" else 0


def _print_group(terminal: Terminal, found: "Curves") -> None:
    terminal.line(f"{found['state']}: {found['text']}")
    last = found["last"]
    if last is not None and found["loss_tag"] is not None:
        old = _age(float(last["age_s"]))
        terminal.line(f"{found['loss_tag']} is {_shown(float(last['loss']))} at step {number(last['step'])}, {old} ago")
    if found["summary"]:
        terminal.line()
        rows = [_summary_row(tag, report, found["tags"].get(tag, [])) for tag, report in found["summary"].items()]
        terminal.table(_HEAD, rows, right=_HEAD[1:-1])


def _summary_row(tag: str, report: "TagReport", points: list[list[Any]]) -> tuple[str, ...]:
    series = Series()
    for step, wall, value in points:
        series.add(int(step), float(wall), float(value))
    ends = [UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN]
    if report["first"] is not None and report["last"] is not None:
        (first_step, first), (last_step, last) = report["first"], report["last"]
        ends = [number(first_step), _shown(float(first)), number(last_step), _shown(float(last))]
    return (
        clipped(tag, _NAME_CELLS) or '""',
        number(report["n"]),
        *ends,
        number(report["nan"]) if report["nan"] else "",
        number(report["superseded"]) if report["superseded"] else "",
        sparkline(Curve([series]), _SPARK_CELLS),
    )


def _print(terminal: Terminal, tree: RunTree, state: RunState) -> None:
    terminal.line(f"{state.state}: {sanitize(state.text)}")
    if state.last is not None and state.age_s is not None and state.loss is not None:
        value, old = _shown(state.last.value), _age(state.age_s)
        terminal.line(f"{sanitize(state.loss)} is {value} at step {number(state.last.step)}, {old} ago")
    curves = tree.curves()
    if curves:
        terminal.line()
        terminal.table(_HEAD, [_row(item) for item in curves], right=_HEAD[1:-1])


def _row(item: NamedCurve) -> tuple[str, ...]:
    curve = item.curve
    return (
        clipped(sanitize(item.name), _NAME_CELLS) or '""',
        number(len(curve)),
        *_pair(curve.first),
        *_pair(curve.last),
        number(curve.nonfinite) if curve.nonfinite else "",
        number(curve.superseded) if curve.superseded else "",
        sparkline(curve, _SPARK_CELLS),
    )


def _pair(point: Point | None) -> tuple[str, str]:
    return (UNKNOWN, UNKNOWN) if point is None else (number(point.step), _shown(point.value))


def _shown(value: float) -> str:
    """Seven digits: most values were written as 32-bit floats, and the eighth is not theirs."""
    return f"{value:.7g}"


def _age(age_s: float) -> str:
    # A writer's clock can say anything, NaN too.
    return coarse(int(min(age_s, 1e12) * 1000)) if age_s >= 0 else coarse(0)


def _damage(tree: RunTree) -> list[str]:
    said = []
    for file in tree.damages():
        if file.unreadable is not None:
            said.append(f"{file.file} cannot be read after byte {file.unreadable.offset}: {file.unreadable.why}")
        if file.bad_crc:
            said.append(f"{file.file}: {file.bad_crc} records with a wrong checksum are left out")
        if file.bad_proto:
            said.append(f"{file.file}: {file.bad_proto} records that are no events are left out")
        if file.refused:
            said.append(f"{file.file}: {file.refused} values are left out: too many tags, or a tag that is too long")
    return said


VERB = Verb(_add_arguments, _run, needs_client=lambda args: not is_path(args.target))
