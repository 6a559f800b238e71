"""heteroflow context ls|use|rm"""

import argparse
from dataclasses import replace
from typing import Any

from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.contexts import Context, Contexts, load_contexts, save_contexts
from console.core.format import UNKNOWN
from schemas.errors import InvalidInput

_HEAD = ("", "NAME", "NODES", "KEY", "CA")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("ls", "use", "rm"), help="ls: list; use: make it the current one; rm: forget it, not its key"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="of use and rm")


async def _run(args: argparse.Namespace, terminal: Terminal, client: Any) -> int:
    contexts = load_contexts(terminal.environment)
    if args.action == "ls":
        return _list(args, terminal, contexts)
    if not args.name:
        raise InvalidInput("no_name", f"context {args.action} needs a name", "`heteroflow context ls` lists them.")
    known = contexts.of(args.name)
    if args.action == "use":
        save_contexts(replace(contexts, current=args.name))
        terminal.line(f"{args.name} is the current mesh")
    else:
        save_contexts(contexts.without(args.name))
        terminal.line(f"{args.name} is forgotten" + (f"; its key stays in {known.key_file}" if known.key_file else ""))
    return 0


def _list(args: argparse.Namespace, terminal: Terminal, contexts: Contexts) -> int:
    if args.output == "json":
        named = {name: _shown(context) for name, context in contexts.named.items()}
        terminal.json({"current": contexts.current or None, "contexts": named})
    elif not contexts.named:
        terminal.note("no context yet; `heteroflow login NAME --node HOST:PORT` makes one")
    else:
        rows = [
            (
                "*" if name == contexts.current else "",
                name,
                ",".join(context.nodes),
                context.key_file or UNKNOWN,
                context.ca_file or UNKNOWN,
            )
            for name, context in sorted(contexts.named.items())
        ]
        terminal.table(_HEAD, rows)
    return 0


def _shown(context: Context) -> dict[str, Any]:
    return {"nodes": list(context.nodes), "key_file": context.key_file, "ca_file": context.ca_file}


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False)
