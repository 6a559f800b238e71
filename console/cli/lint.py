"""heteroflow lint FILE|-"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from console.cli.options import add_json_option
from console.cli.submit import assign, parsed
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.sanitize import sanitize
from schemas.errors import Finding, HeteroFlowError
from schemas.task_group import check_task_group
from schemas.task_group.check import Checked
from schemas.task_group.parent import parent_of, told_by_parent

_REFUSED = 1
_UNREADABLE = 2


def add_document(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="YAML or JSON document, - for standard input")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="replace one field before it is judged"
    )
    parser.add_argument(
        "--allow-path",
        action="append",
        default=[],
        metavar="P",
        help="a directory that the agents of the mesh allow in addition; may be repeated",
    )
    add_json_option(parser)


async def _run(args: argparse.Namespace, terminal: Terminal, _: object) -> int:
    try:
        checked = checked_document(args)
    except HeteroFlowError as error:
        if args.output != "json":
            raise
        problem = error.problem
        unreadable = Finding(problem.code, problem.field, problem.message, problem.hint)
        terminal.json({"errors": [unreadable.to_dict()], "warnings": []})
        return _UNREADABLE
    return print_findings(args, terminal, checked)


def checked_document(args: argparse.Namespace) -> Checked:
    """Of the file that was named, with its --set; neither document nor errors where the rest comes from its parent.
    Raises InvalidInput where it cannot be read."""
    raw = parsed(args.file)
    if isinstance(raw, dict):
        for assignment in args.set:
            assign(raw, assignment)
    checked = check_task_group(raw, args.allow_path)
    if not isinstance(raw, dict) or parent_of(raw) is None:
        return checked
    # Only a mesh knows what the parent's document gives this one.
    return replace(checked, errors=[found for found in checked.errors if not told_by_parent(found)])


def print_findings(args: argparse.Namespace, terminal: Terminal, checked: Checked) -> int:
    """The exit code: 1 where the document would be refused."""
    if args.output == "json":
        terminal.json(_listed(checked.errors, checked.warnings))
    else:
        name = "standard input" if args.file == "-" else args.file
        terminal.lines(_lines(name, checked.errors, checked.warnings, checked.document is not None))
        if checked.document is None and not checked.errors:
            terminal.note("what it leaves out comes from its parent_checkpoint, and is judged when it is submitted")
    return _REFUSED if checked.errors else 0


def _listed(errors: Sequence[Finding], warnings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "errors": [finding.to_dict() for finding in errors],
        "warnings": [finding.to_dict() for finding in warnings],
    }


def _lines(name: str, errors: Sequence[Finding], warnings: Sequence[Finding], whole: bool) -> list[str]:
    """The verdict first, then what refuses it, then what is only doubtful; below each what to do."""
    counts = [_count(len(errors), "error"), _count(len(warnings), "warning")]
    verdict = "would be refused" if errors else "would be accepted" if whole else "is right as far as it goes"
    lines = [sanitize(f"{'✗' if errors else '✓'} {name} {verdict}: {', '.join(counts)}")]
    for mark, findings in (("✗", errors), ("!", warnings)):
        for finding in findings:
            lines.append(sanitize(f"  {mark} {finding.message}  [{finding.code}]"))
            lines += [sanitize(f"      {finding.hint}")] if finding.hint else []
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


VERB = Verb(add_document, _run, needs_client=lambda args: False)
