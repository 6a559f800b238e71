"""heteroflow checkpoint probe DIR --framework F"""

import argparse
from typing import Any

from console.checkpoint_tree import probe_path
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.sanitize import sanitize
from schemas.errors import NotFound
from schemas.rules.checkpoints.probe import FRAMEWORKS

_HEAD = ("REJECTED", "WHY")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("probe",), help="probe: the newest complete checkpoint of a directory")
    parser.add_argument("directory", metavar="DIR", help="a checkpoint directory of this host")
    parser.add_argument("--framework", required=True, choices=FRAMEWORKS, help="whose rules hold, as in the document")
    parser.add_argument(
        "--world", type=int, metavar="N", help="how many processes wrote, where the framework does not record it"
    )
    parser.add_argument(
        "--json",
        action="store_const",
        dest="output",
        const="json",
        default=argparse.SUPPRESS,
        help="the same as -o json",
    )


async def _run(args: argparse.Namespace, terminal: Terminal, client: Any) -> int:
    try:
        found = probe_path(args.directory, args.framework, args.world)
    except OSError as error:
        said = f"{args.directory} cannot be opened: {error.strerror}"
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


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False)
