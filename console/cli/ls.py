"""heteroflow ls"""

import argparse
from typing import TYPE_CHECKING

from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import UNKNOWN, age, coarse, folded_nodes, moment_ms, number, status_text, text_or_dash
from schemas.api import GroupSummary, Task
from schemas.task_types import TRAINING

if TYPE_CHECKING:
    from console.client import MeshClient

_PAGE = 1000
_WIDE = ("FRAMEWORK", "TENANT", "WHO", "PRI", "ATTEMPT")
PRIORITY_NAMES = {0: "normal", 1: "high", 2: "highest"}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--status", action="append", default=[], help="only these statuses; may be repeated or comma-separated"
    )
    parser.add_argument("--name", help="only groups whose name contains this, without regard to case")
    parser.add_argument("--limit", type=whole(1, 100_000), default=100, help="at most this many, newest first (100)")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    groups, now_ms, more = await _read(client, args)
    if args.output == "json":
        terminal.json({"groups": groups})
        return 0
    if not groups:
        terminal.note("no task group matches" if args.status or args.name else "no task group has been submitted yet")
        return 0
    typed = args.wide or any(group["task_type"] != TRAINING for group in groups)
    head = ("NAME", *(("TYPE",) if typed else ()), "STATUS", "GPU", "NODES", "AGE", "RUN", "ID")
    rows = [_row(group, now_ms, typed) for group in groups]
    if args.wide:
        head += _WIDE
        rows = [(*row[:-1], *_beside(group), row[-1]) for row, group in zip(rows, groups, strict=True)]
    terminal.table((*head, "WHY"), rows, right=("GPU", "AGE", "RUN", "ATTEMPT"))
    if more:
        terminal.note(f"there are more than {args.limit}; see --limit, --status and --name")
    return 0


async def _read(client: "MeshClient", args: argparse.Namespace) -> tuple[list[GroupSummary], int, bool]:
    params = {"limit": str(min(args.limit, _PAGE))}
    if args.status:
        params["status"] = ",".join(args.status)
    if args.name:
        params["name"] = args.name
    groups: list[GroupSummary] = []
    while True:
        answer = await client.read("/api/v1/task-groups", params)
        groups += answer.value["groups"]
        cursor = answer.value.get("cursor")
        if cursor is None or len(groups) >= args.limit:
            return groups[: args.limit], answer.now_ms, cursor is not None or len(groups) > args.limit
        params["cursor"] = str(cursor)


def _row(group: GroupSummary, now_ms: int, typed: bool) -> tuple[str, ...]:
    """typed: not all are of one type, so it is said."""
    return (
        group["name"],
        *((group["task_type"],) if typed else ()),
        status_text(group["status"]),
        cards(group),
        folded_nodes(group.get("nodes") or []),
        age(moment_ms(group.get("created_at")), now_ms),
        run_time(group, now_ms),
        group["group_id"],
        short_reason(group),
    )


def _beside(group: GroupSummary) -> tuple[str, ...]:
    priority = PRIORITY_NAMES.get(group.get("priority", -1), UNKNOWN)
    told = (text_or_dash(group.get(name)) for name in ("framework", "tenant", "user"))
    return (*told, priority, number(group.get("attempt")))


def cards(group: GroupSummary) -> str:
    nodes, each = group.get("n_nodes"), group.get("per_node_gpu")
    return number(nodes * each) if isinstance(nodes, int) and isinstance(each, int) else UNKNOWN


def run_time(item: GroupSummary | Task, now_ms: int) -> str:
    started, ended = moment_ms(item.get("started_at")), moment_ms(item.get("ended_at"))
    return UNKNOWN if started is None else coarse((ended or now_ms) - started)


def short_reason(group: GroupSummary) -> str:
    """A problem carries its reason in the list itself."""
    if group["status"] == "failed" and group["failure"]:
        return str(group["failure"].get("text") or "")
    if group["status"] == "pending" and group["pending_reason"]:
        return group["pending_reason"]["text"]
    return ""


VERB = Verb(_add_arguments, _run)
