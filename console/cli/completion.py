"""heteroflow completion bash|zsh|fish"""

import argparse

from console.cli.options import add_connection_options
from console.cli.terminal import Terminal
from console.cli.verb import VERBS, Verb, verb_named
from console.core.completion import SHELLS, script


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


async def _run(args: argparse.Namespace, terminal: Terminal, client: None) -> int:
    known = {"": _words(argparse.ArgumentParser())}
    for name in VERBS:
        parser = argparse.ArgumentParser()
        verb_named(name).add_arguments(parser)
        known[name] = _words(parser)
    terminal.out.write(script(args.shell, known))
    return 0


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Long options, and the words of arguments that take one of some."""
    add_connection_options(parser)
    words = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    for action in parser._actions:
        if action.choices and not action.option_strings:
            words += map(str, action.choices)
    return words


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False, outputs=("table",))
