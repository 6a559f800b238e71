"""heteroflow version"""

import argparse
from importlib.metadata import PackageNotFoundError, version

from console.cli.terminal import Terminal
from console.cli.verb import Verb


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


async def _run(args: argparse.Namespace, terminal: Terminal, client: None) -> int:
    try:
        number = version("heteroflow-mesh")
    except PackageNotFoundError:
        number = "unknown (not installed)"
    if args.output == "json":
        terminal.json({"version": number})
    else:
        terminal.line(f"heteroflow {number}")
    return 0


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False)
