"""heteroflow exec GROUP RANK [-- PROGRAM ARGUMENTS...]"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from schemas.exec_frames import DEFAULT_TERM, ExecRequest

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")
    parser.add_argument("rank", metavar="RANK", type=whole(0, 1_000_000))
    parser.add_argument(
        "program", metavar="PROGRAM", nargs="*", default=[], help="after --; a shell where none is given"
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "-t", "--tty", action="store_true", default=None, help="on a terminal (the default for a shell)"
    )
    choice.add_argument("-T", "--no-tty", dest="tty", action="store_false", help="on pipes (the default for a program)")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    from console.exec_session import run_session

    at_terminal = os.isatty(0) and os.isatty(1)
    tty = at_terminal and not args.program if args.tty is None else args.tty
    rows, cols = _size() if at_terminal else (24, 80)
    term = terminal.environment.get("TERM") or DEFAULT_TERM
    asked = ExecRequest(tuple(args.program), tty, rows, cols, term)
    group_id = await group_id_of(client, args.group)
    sys.stdout.flush()
    return await run_session(client, terminal, f"/api/v1/task-groups/{group_id}/exec", args.rank, asked)


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(0)
    return max(size.lines, 1), max(size.columns, 1)


VERB = Verb(_add_arguments, _run, outputs=("table",), program=True)
