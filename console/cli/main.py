"""`heteroflow`: finds the verb, loads only its file, and turns every ending into an exit code."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from console.cli.options import add_connection_options
from console.cli.terminal import Terminal
from console.cli.verb import VERBS, Verb
from console.core.exit_codes import BROKEN_PIPE, INTERRUPTED, NO_NODE, USAGE, of_status
from schemas.errors import HeteroFlowError, InvalidInput

_EPILOG = (
    "exit codes: 0 done · 1 the group failed · 2 usage or an invalid document · 3 not found · 4 no node answers · "
    "5 refused · 6 the group was stopped · 130 interrupted"
)


def main(argv: Sequence[str] | None = None) -> int:
    """The console script; its value is the exit code."""
    words = sys.argv[1:] if argv is None else argv
    terminal = Terminal(sys.stdout, sys.stderr, os.environ)
    try:
        code = run(words, terminal)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read us has enough. Python would complain once more when it flushes at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def run(words: Sequence[str], terminal: Terminal) -> int:
    """The exit code of one command line. Raises BrokenPipeError and KeyboardInterrupt only."""
    parser, verbs = _parser(words)
    try:
        args = parser.parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    if args.verb is None and terminal.is_tty and sys.stdin.isatty():
        return run(["console", *words], terminal)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return USAGE
    import asyncio

    try:
        return asyncio.run(_verb_with_client(verbs[args.verb], args, terminal))
    except HeteroFlowError as error:
        terminal.problem(error.problem)
        return of_status(error.problem.status)


async def _verb_with_client(verb: Verb, args: argparse.Namespace, terminal: Terminal) -> int:
    if args.output not in verb.outputs:
        known = " or ".join(verb.outputs)
        raise InvalidInput("no_such_output", f"{args.verb} has no output {args.output}", f"Use -o {known}.")
    if not verb.needs_client(args):
        return await verb.run(args, terminal, None)
    # aiohttp costs more than everything else together; usage errors and --help never load it.
    from console.client import MeshClient, NoNodeAnswers, Refused
    from console.endpoints import find_target

    target = find_target(
        args.node or (), args.data_dir, args.token_file, terminal.environment, args.context, args.ca_file
    )
    try:
        async with MeshClient(target, args.timeout, clean=args.output != "json" and not verb.raw) as client:
            return await verb.run(args, terminal, client)
    except Refused as refused:
        terminal.problem(refused.problem, refused.node)
        return of_status(refused.problem.status)
    except NoNodeAnswers as error:
        terminal.no_node(error)
        return NO_NODE


def _parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, dict[str, Verb]]:
    """Only verbs whose name stands in the command line are imported; the others are one line of help."""
    parser = argparse.ArgumentParser(
        "heteroflow", description="Submit, watch and stop training on the mesh.", epilog=_EPILOG
    )
    add_connection_options(parser)
    children = parser.add_subparsers(dest="verb", metavar="VERB")
    loaded: dict[str, Verb] = {}
    for name, summary in VERBS.items():
        child = children.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", epilog=_EPILOG
        )
        if name in words:
            verb: Verb = import_module(f"console.cli.{name.replace('-', '_')}").VERB
            add_connection_options(child, again=True)
            verb.add_arguments(child)
            loaded[name] = verb
    return parser, loaded


if __name__ == "__main__":
    sys.exit(main())
