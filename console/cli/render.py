"""heteroflow render FILE|- --rank K"""

import argparse
import shlex

from console.cli.lint import add_document, checked_document, print_findings
from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.rendered_rank import RenderedRank, render
from console.core.sanitize import sanitize
from schemas.errors import InvalidInput
from schemas.task_types import shown_shape


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_document(parser)
    parser.add_argument(
        "--rank", type=whole(0, 1_000_000), default=0, metavar="K", help="rank of the node, from 0 (the default)"
    )


async def _run(args: argparse.Namespace, terminal: Terminal, _: object) -> int:
    checked = checked_document(args)
    if checked.document is None and not checked.errors:
        raise InvalidInput(
            "needs_parent",
            "what the document leaves out is its parent's, and only a mesh knows that",
            "Write it in; `heteroflow clone PARENT` prints the parent's.",
            field="training.parent_checkpoint",
        )
    if checked.document is None:
        return print_findings(args, terminal, checked)
    nodes = shown_shape(checked.document)["n_nodes"]
    if args.rank >= nodes:
        raise InvalidInput(
            "no_such_rank", f"the group has ranks 0 to {nodes - 1}, not {args.rank}", "Name one of them."
        )
    rendered = render(checked.document, args.rank)
    if args.output == "json":
        terminal.json(rendered.to_dict())
    else:
        terminal.lines(_lines(rendered, nodes))
    return 0


def _lines(rendered: RenderedRank, nodes: int) -> list[str]:
    told = rendered.to_dict()
    lines = [f"rank {rendered.rank} of {nodes}", f"argv   {shlex.join(told['argv'])}", f"cwd    {told['cwd']}", "env"]
    lines += [f"  {name}={_value(value)}" for name, value in told["env"].items()]
    lines.append(
        "mounts" if told["mounts"] else "mounts none" + ("" if rendered.container else ": paths are the host's")
    )
    for mount in told["mounts"]:
        lines.append(f"  {mount['source']} -> {mount['target']} {'ro' if mount['read_only'] else 'rw'}")
    lines.append("files")
    for path, text in told["files"].items():
        lines += [f"  {path}", *(f"    {line}" for line in text.splitlines())]
    lines += [f"  {path}: {what}" for path, what in told["beside"].items()]
    if told["placeholders"]:
        lines.append("decided when it is placed")
        lines += [f"  {name}  {why}".rstrip() for name, why in told["placeholders"].items()]
    # Line breaks stay: without them a command of several lines is another command.
    return [sanitize(line, lines=True) for line in lines]


def _value(text: str) -> str:
    return shlex.quote(text) if "\n" in text else text


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False)
