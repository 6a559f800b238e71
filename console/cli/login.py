"""heteroflow login [NAME]"""

import argparse
import getpass
import sys
from pathlib import Path
from typing import Any

from console.cli.request import new_request_id
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.cli.whoami import person_text
from console.contexts import NAME, Context, config_dir, load_contexts, save_contexts, write_private
from console.core.exit_codes import NO_NODE, of_status
from console.endpoints import DEFAULT_NODE, Target, address, checked_secret, find_ca_file, listed, read_secret
from schemas.errors import InvalidInput


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="what to call this mesh here (default)")
    parser.add_argument(
        "--print-token",
        action="store_true",
        help="print a token of a quarter of an hour for the API key, and keep nothing",
    )


async def _run(args: argparse.Namespace, terminal: Terminal, client: Any) -> int:
    """The key is tried before anything is written; it comes from --token-file, a prompt, or standard input."""
    from console.client import MeshClient, NoNodeAnswers, Refused

    name = args.name or "default"
    if not NAME.fullmatch(name):
        raise InvalidInput("bad_context", f"{name[:80]!r} is no name", "Use letters, digits, '.', '_' and '-'.")
    contexts = load_contexts(terminal.environment)
    known = contexts.named.get(name, Context(()))
    nodes = tuple(args.node or known.nodes or listed(terminal.environment.get("HETEROFLOW_NODES", "")))
    ca_file = find_ca_file(args.ca_file, args.data_dir, terminal.environment) or known.ca_file
    nodes = tuple(address(node, ca_file) for node in nodes or (DEFAULT_NODE,))
    key = read_secret(Path(args.token_file).expanduser()) if args.token_file else _asked(terminal)
    try:
        async with MeshClient(Target(nodes, key, ca_file), args.timeout) as mesh:
            if args.print_token:
                answer = await mesh.write("/api/v1/login", new_request_id())
                terminal.json(answer.value) if args.output == "json" else terminal.line(answer.value["token"])
                return 0
            who = (await mesh.read("/api/v1/whoami")).value
    except Refused as refused:
        terminal.problem(refused.problem, refused.node)
        return of_status(refused.problem.status)
    except NoNodeAnswers as error:
        terminal.no_node(error)
        return NO_NODE
    if args.token_file:
        key_file = Path(args.token_file).expanduser().absolute()
    else:
        key_file = config_dir(terminal.environment) / "keys" / name
        write_private(key_file, key + "\n")
    save_contexts(contexts.with_context(name, Context(nodes, str(key_file), ca_file)))
    if args.output == "json":
        terminal.json({"context": name, "nodes": list(nodes), "who": who})
        return 0
    terminal.line(f"{name}: {person_text(who)}")
    if who["kind"] == "mesh":
        terminal.note(
            "this is the mesh token, which may do anything; for a person make a key: heteroflow key create NAME"
        )
    return 0


def _asked(terminal: Terminal) -> str:
    if sys.stdin.isatty():
        return checked_secret(getpass.getpass("API key: ", terminal.err), "what was typed")
    return checked_secret(sys.stdin.readline(4096), "standard input")


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False)
