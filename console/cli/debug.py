"""heteroflow debug bundle [OUT.tar.gz]"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from schemas.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("bundle",), help="bundle: what is needed to find a fault, in one file")
    parser.add_argument("out", metavar="OUT.tar.gz", nargs="?", help="where to write it (heteroflow-debug-TIME.tar.gz)")
    parser.add_argument(
        "--group", action="append", default=[], metavar="GROUP", help="this group's detail and timeline too"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NODE", help="of these nodes alone")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    from console.debug_bundle import collect, write_bundle

    out = Path(args.out or time.strftime("heteroflow-debug-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    if out.exists():
        raise Conflict("file_exists", f"{out} exists", "name another file")
    group_ids = [await group_id_of(client, reference) for reference in args.group]
    bundle = await collect(client, group_ids, args.only)
    try:
        size = write_bundle(bundle, out)
    except OSError as error:
        raise InvalidInput("not_written", f"{out} cannot be written: {error.strerror}", "name another file") from error
    if args.output == "json":
        terminal.json({"file": str(out), "bytes": size, "nodes": bundle.nodes, "unreachable": bundle.unreachable})
    else:
        terminal.line(str(out))
        terminal.note(f"{size >> 10} KiB of {len(bundle.nodes)} nodes; secrets are left out")
        for node, why in sorted(bundle.unreachable.items()):
            terminal.note(f"not in it: node {node}: {why}")
    return 0


VERB = Verb(_add_arguments, _run)
