"""heteroflow submit FILE|-"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.cli.logs import print_logs
from console.cli.request import new_request_id
from console.cli.result import exit_code, result_text, wait_for_end, wait_for_outcome
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from schemas.errors import InvalidInput
from schemas.ids import segment_refusal
from schemas.lexemes import Plain
from schemas.limits import DOCUMENT_MAX
from schemas.strict_json import parse_strict_json
from schemas.task_group import accepted_task_group, encode_document

if TYPE_CHECKING:
    from console.client import MeshClient
    from schemas.api import Submitted

_MAPS = frozenset(("hyper_params", "env", "labels"))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="YAML or JSON document, - for standard input")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="replace one field, for example training.hyper_params.lr=3e-4",
    )
    add_waiting(parser)


def add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        action="store_true",
        help="return when the group has ended, or runs where it is inference; exit 0 completed or running, 1 failed, "
        "6 stopped",
    )
    parser.add_argument("--follow", action="store_true", help="print the logs meanwhile (implies --wait)")
    parser.add_argument(
        "--request-id", metavar="ID", type=_request_id, help="repeat with the same id to create nothing twice"
    )


def _request_id(text: str) -> str:
    if refusal := segment_refusal(text, "request id"):
        raise argparse.ArgumentTypeError(refusal)
    return text


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    document = read_document(args.file)
    for assignment in args.set:
        assign(document, assignment)
    answer = await client.write("/api/v1/task-groups", args.request_id or new_request_id(), encode_document(document))
    return await created(args, terminal, client, answer.value)


async def created(args: argparse.Namespace, terminal: Terminal, client: "MeshClient", submitted: "Submitted") -> int:
    """stdout gets the id alone, for scripts; people read the rest on stderr."""
    group_id = submitted["group_id"]
    terminal.warnings(submitted.get("warnings") or [])
    if args.output == "json":
        terminal.json(submitted)
    else:
        terminal.line(group_id)
    terminal.out.flush()
    if not (args.wait or args.follow):
        if args.output != "json" and terminal.is_tty:
            terminal.note(f"{submitted['status']}; follow it with: heteroflow logs -f {group_id}")
        return 0
    try:
        if args.follow:
            await print_logs(terminal, client, group_id, follow=True, as_json=args.output == "json")
        row = await (wait_for_end if args.follow else wait_for_outcome)(client, group_id)
    except asyncio.CancelledError:
        terminal.note(f"the group goes on; stop it with: heteroflow stop {group_id}")
        raise
    if args.output == "json":
        status, failure = (row["status"], row.get("failure")) if row else ("deleted", None)
        terminal.json({"group_id": group_id, "status": status, "failure": failure})
    else:
        terminal.note(result_text(group_id, row))
    return exit_code(row)


def read_document(name: str) -> dict[str, Any]:
    """Raises InvalidInput where it is no mapping; what it says is judged by the agent, which knows its allow-list."""
    document = parsed(name)
    if not isinstance(document, dict):
        accepted_task_group(document)
    return dict(document)


def parsed(name: str) -> Any:
    """What a file or standard input holds, scalars as written. Raises InvalidInput where it cannot be read."""
    body, is_json = _body(name)
    if body.startswith(b"#!"):
        hint = "Put what it runs into task.command of a document; `heteroflow template ls` lists some to begin with."
        raise InvalidInput("a_script", f"{name} is a script, and no task-group document", hint)
    if is_json:
        return parse_strict_json(body)
    from schemas.as_written_yaml import parse_yaml  # loads a YAML parser, which JSON does without

    return parse_yaml(body)


def _body(name: str) -> tuple[bytes, bool]:
    # One byte more than is allowed, so that the reader sees it is too much.
    try:
        if name == "-":
            body = sys.stdin.buffer.read(DOCUMENT_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                body = file.read(DOCUMENT_MAX + 1)
    except OSError as error:
        raise InvalidInput(
            "no_document", f"{name} cannot be read: {error.strerror}", "Give a YAML or JSON file, or -."
        ) from error
    suffix = Path(name).suffix.lower()
    return body, suffix == ".json" or (suffix not in (".yaml", ".yml") and body.lstrip()[:1] == b"{")


def assign(document: dict[str, Any], assignment: str) -> None:
    """Raises InvalidInput. Keys of hyper_params, env and labels may hold dots themselves."""
    path, equals, value = assignment.partition("=")
    names = path.split(".")
    for at, name in enumerate(names[:-1]):
        if name in _MAPS:
            names[at + 1 :] = [".".join(names[at + 1 :])]
            break
    if not equals or not all(names):
        raise InvalidInput(
            "bad_set", f"--set {assignment[:80]!r} is not FIELD=VALUE", "For example --set training.n_nodes=4."
        )
    holder: Any = document
    for name in names[:-1]:
        holder = holder.setdefault(name, {}) if isinstance(holder, dict) else None
    if not isinstance(holder, dict):
        where = ".".join(names[:-1]) or "the document"
        raise InvalidInput("bad_set", f"--set {path[:80]}: {where} holds no fields", "Name a field of the document.")
    holder[names[-1]] = Plain(value)


VERB = Verb(_add_arguments, _run)
