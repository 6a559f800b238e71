"""heteroflow clone GROUP"""

import argparse
import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from console.cli.group_ref import group_id_of
from console.cli.request import new_request_id
from console.cli.submit import add_waiting, assign, created, read_document
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.document_yaml import document_yaml
from schemas.as_written_yaml import parse_yaml
from schemas.errors import InvalidInput
from schemas.task_group import encode_document

if TYPE_CHECKING:
    from console.client import MeshClient

_EDITORS = ("VISUAL", "EDITOR")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="replace one field in what is printed"
    )
    parser.add_argument("--edit", action="store_true", help="open it in $VISUAL or $EDITOR, and submit what was saved")
    add_waiting(parser)


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_id = await group_id_of(client, args.group)
    answer = await client.read(f"/api/v1/task-groups/{group_id}")
    text = document_yaml(answer.value["config"])
    document = parse_yaml(text.encode())
    for assignment in args.set:
        assign(document, assignment)
    if args.set:
        text = document_yaml(document)
    if not args.edit:
        if args.output == "json":
            terminal.json(json.loads(encode_document(document)))
        else:
            terminal.out.write(text)
        return 0
    path = _edited(text, group_id, terminal)
    sent = None
    try:
        edited = read_document(str(path))
        sent = await client.write("/api/v1/task-groups", args.request_id or new_request_id(), encode_document(edited))
    finally:
        if sent is None:
            terminal.note(f"your text is kept in {path}")
    path.unlink()
    return await created(args, terminal, client, sent.value)


def _edited(text: str, group_id: str, terminal: Terminal) -> Path:
    """The file as the editor left it. Raises InvalidInput where nothing is to be submitted."""
    editor = next((found for name in _EDITORS if (found := terminal.environment.get(name))), "")
    if not editor and not terminal.is_tty:
        raise InvalidInput("no_editor", "there is no terminal to edit on", "Use --set, or set VISUAL or EDITOR.")
    editor = editor or "vi"
    descriptor, name = tempfile.mkstemp(prefix=f"{group_id}-", suffix=".yaml")
    path = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    try:
        ended = subprocess.run([*shlex.split(editor), name], check=False).returncode
    except OSError as error:
        path.unlink()
        raise InvalidInput(
            "no_editor", f"{editor} cannot be started: {error.strerror}", "Set VISUAL or EDITOR to an editor."
        ) from error
    if ended:
        raise InvalidInput("edit_failed", f"{editor} ended with {ended}; nothing was submitted. Text: {path}")
    if path.read_text(encoding="utf-8", errors="replace") == text:
        path.unlink()
        raise InvalidInput(
            "not_edited",
            "nothing was changed, so nothing was submitted",
            f"Repeat it: heteroflow resubmit {group_id}",
        )
    return path


VERB = Verb(_add_arguments, _run, outputs=("table", "yaml", "json"), raw=True)
