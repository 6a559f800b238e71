"""heteroflow template ls|show NAME|apply NAME [FILE]"""

import argparse
import json

from console.cli.submit import parsed
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.document_yaml import document_yaml
from console.core.sanitize import sanitize
from schemas.errors import InvalidInput, NotFound
from schemas.rules.templates import Template
from schemas.rules.templates.apply import applied, newest, template_named
from schemas.task_group import encode_document

_HEAD = ("TEMPLATE", "VERSION", "FRAMEWORK", "WHAT FOR")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("ls", "show", "apply"),
        help="ls: list them; show: print one; apply: fill what a document leaves open",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="of a template, or NAME/VERSION for an older one")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="apply: the YAML or JSON document to fill, - for standard input"
    )


async def _run(args: argparse.Namespace, terminal: Terminal, _: object) -> int:
    if args.action == "ls":
        return _ls(args, terminal)
    template = _named(args.name)
    if args.action == "show" and args.file is not None:
        raise InvalidInput("usage", "show takes one name", "Say apply to fill a document.")
    document = parsed(args.file) if args.file is not None else {}
    if not isinstance(document, dict):
        raise InvalidInput("invalid_document", f"{args.file} holds no mapping", "Write name, training and task.")
    found = applied(template, document)
    _print(args, terminal, found.document)
    if found.unknown_base is not None:
        terminal.note(
            f"made from {sanitize(found.unknown_base)}, which is not known here: every field counts as edited"
        )
    if found.kept:
        terminal.note(f"kept, because they were edited: {sanitize(', '.join(found.kept))}")
    if found.removed:
        terminal.note(f"removed, because only the earlier template had them: {sanitize(', '.join(found.removed))}")
    left = [field for field in template.edit if field not in found.kept and not _given(document, field)]
    if left:
        terminal.note(f"still the template's, look at them: {', '.join(left)}")
    return 0


def _given(document: object, field: str) -> bool:
    for name in field.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document is not None


def _named(name: str | None) -> Template:
    known = ", ".join(template.name for template in newest())
    if name is None:
        raise InvalidInput("usage", "no template was named", f"Known: {known}.")
    template = template_named(name)
    if template is None:
        raise NotFound("no_such_template", f"there is no template {name!r:.80}", f"Known: {known}.")
    return template


def _ls(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.output != "table":
        terminal.as_yaml = args.output == "yaml"
        listed = [
            {"name": t.name, "version": t.version, "summary": t.summary, "document": t.document} for t in newest()
        ]
        terminal.json({"templates": listed})
    else:
        terminal.table(
            _HEAD, [(t.name, str(t.version), t.document["training"]["framework"], t.summary) for t in newest()]
        )
    return 0


def _print(args: argparse.Namespace, terminal: Terminal, document: dict[str, object]) -> None:
    if args.output == "json":
        terminal.json(json.loads(encode_document(document)))
    else:
        terminal.out.write(document_yaml(document))


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False, outputs=("table", "yaml", "json"), raw=True)
