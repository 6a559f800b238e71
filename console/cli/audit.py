"""heteroflow audit"""

import argparse
from typing import TYPE_CHECKING, Any

from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import UNKNOWN, utc_text

if TYPE_CHECKING:
    from console.client import MeshClient

_PAGE = 1000
_HEAD = ("TIME (UTC)", "WHO", "DID", "TO", "THROUGH", "RESULT", "MORE")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=whole(1, 100_000), default=100, help="at most this many, newest first (100)")
    parser.add_argument("--who", metavar="NAME", help="only what this one did")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    entries: list[dict[str, Any]] = []
    params = {"limit": str(_PAGE if args.who else min(args.limit, _PAGE))}
    while len(entries) < args.limit:
        answer = await client.read("/api/v1/audit", params)
        entries += [entry for entry in answer.value["entries"] if args.who in (None, entry["who"], entry["key_id"])]
        if answer.value["cursor"] is None:
            break
        params["cursor"] = str(answer.value["cursor"])
    entries = entries[: args.limit]
    if args.output == "json":
        terminal.json({"entries": entries})
    elif not entries:
        terminal.note("nothing has been changed yet" if args.who is None else f"nothing by {args.who}")
    else:
        terminal.table(_HEAD, [_row(entry) for entry in entries])
    return 0


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    more = " ".join(f"{name}={value}" for name, value in sorted(entry["details"].items()))
    return (
        utc_text(entry["at"]).removesuffix(" UTC"),
        entry["who"],
        entry["what"],
        entry["target"] or UNKNOWN,
        entry["node_id"],
        (entry["code"] or "done") if entry["ok"] else f"refused: {entry['code']}",
        more,
    )


VERB = Verb(_add_arguments, _run)
