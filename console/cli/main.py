"""`heteroflow`: finds the verb, loads only its file, and turns every ending into an exit code."""

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from console.cli.options import add_connection_options
from console.cli.terminal import Terminal
from console.cli.usage import UsageParser
from console.cli.verb import VERBS, Verb, verb_named
from console.core.exit_codes import BROKEN_PIPE, INTERRUPTED, NO_NODE, OUTPUT_LOST, USAGE, of_status
from schemas.errors import HeteroFlowError, InvalidInput, Problem

# What writing ends with; a verb that reads or makes a file names it.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_EPILOG = (
    "exit codes: 0 done · 1 the group failed · 2 usage or an invalid document · 3 not found · 4 no node answers · "
    "5 refused · 6 the group was stopped · 74 the output cannot be written · 130 interrupted"
)


def main(argv: Sequence[str] | None = None) -> int:
    """The console script; its value is the exit code."""
    _open_what_is_closed()
    words = sys.argv[1:] if argv is None else argv
    terminal = Terminal(sys.stdout, sys.stderr, os.environ)
    try:
        code = run(words, terminal)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_output()  # whoever read us has enough
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        _forget_output()
        terminal.problem(Problem("output_lost", f"the output cannot be written: {error.strerror}"))
        return OUTPUT_LOST


def _open_what_is_closed() -> None:
    """`>&-` and some daemons leave a standard stream out. Opened in order, so that each gets its own number."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for the life of the process
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - likewise
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - likewise


def _forget_output() -> None:
    """Python would complain once more when it flushes at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(words: Sequence[str], terminal: Terminal) -> int:
    """The exit code of one command line. Raises BrokenPipeError and KeyboardInterrupt, and OSError where the output
    cannot be written."""
    if words and words[0] == "help":
        words = [*words[1:2], "--help"]
    parser, verbs = _parser(words)
    try:
        args = _parsed(parser, verbs, words)
    except SystemExit as end:
        return USAGE if end.code else 0
    if args.version:
        return run(["version"], terminal)
    if args.verb is None and terminal.is_tty and sys.stdin.isatty():
        return run(["console", *words], terminal)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return USAGE
    import asyncio

    try:
        return asyncio.run(_verb_with_client(verbs[args.verb].verb, args, terminal))
    except HeteroFlowError as error:
        terminal.problem(error.problem)
        return of_status(error.problem.status)


def _parsed(parser: UsageParser, verbs: Mapping[str, "_Loaded"], words: Sequence[str]) -> argparse.Namespace:
    """Raises SystemExit. Of a verb that runs a program, what stands behind `--` is that program's own."""
    own, program = list(words), list[str]()
    verb = next((word for word in own if word in verbs), None)
    if verb is not None and verbs[verb].verb.program and "--" in own:
        at = own.index("--")
        own, program = own[:at], own[at + 1 :]
    args, left = parser.parse_known_args(own)
    if left:
        if args.verb is None:
            parser.words_left(left)
        verbs[args.verb].parser.words_left(left, verbs[args.verb].verb.program)
    if program:
        args.program = [*args.program, *program]
    return args


async def _verb_with_client(verb: Verb, args: argparse.Namespace, terminal: Terminal) -> int:
    _choose_output(verb, args, terminal)
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


def _choose_output(verb: Verb, args: argparse.Namespace, terminal: Terminal) -> None:
    """What a verb says as JSON, the terminal can say as YAML; a wide table is one that nothing is cut from. Raises
    InvalidInput."""
    args.wide = terminal.wide = args.output == "wide" and "table" in verb.outputs
    if args.wide:
        args.output = "table"
    elif args.output == "yaml" and "yaml" not in verb.outputs and "json" in verb.outputs:
        terminal.as_yaml, args.output = True, "json"
    if args.output not in verb.outputs:
        known = " or ".join(verb.outputs)
        raise InvalidInput("no_such_output", f"{args.verb} has no output {args.output}", f"Use -o {known}.")


class _Loaded(NamedTuple):
    verb: Verb
    parser: UsageParser


def _parser(words: Sequence[str]) -> tuple[UsageParser, dict[str, _Loaded]]:
    """Only verbs whose name stands in the command line are imported; the others are one line of help."""
    parser = UsageParser("heteroflow", description="Submit, watch and stop training on the mesh.", epilog=_EPILOG)
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    add_connection_options(parser)
    children = parser.add_subparsers(dest="verb", metavar="VERB")
    loaded: dict[str, _Loaded] = {}
    for name, summary in VERBS.items():
        child = children.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", epilog=_EPILOG
        )
        if name in words:
            verb = verb_named(name)
            add_connection_options(child, again=True)
            verb.add_arguments(child)
            loaded[name] = _Loaded(verb, child)
    return parser, loaded


if __name__ == "__main__":
    sys.exit(main())
