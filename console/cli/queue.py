"""heteroflow queue"""

import argparse
from typing import TYPE_CHECKING

from console.cli.ls import PRIORITY_NAMES
from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import UNKNOWN, age, moment_ms, number
from schemas.api import QueueEntry

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=whole(1, 10_000), default=1000, help="at most this many (1000)")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    answer = await client.read("/api/v1/queue", {"limit": str(args.limit)})
    queue, total, recovery = answer.value["queue"], answer.value.get("total"), answer.value.get("recovery")
    if args.output == "json":
        terminal.json({"queue": queue, "total": total, "recovery": recovery})
        return 0
    if not queue:
        terminal.note("nothing waits")
    else:
        head = ("#", "NAME", "WANTS", "PRI", "WAITED", "ID", "WHY")
        terminal.table(head, [_row(group, answer.now_ms) for group in queue], right=("#", "WAITED"))
        if isinstance(total, int) and total > len(queue):
            terminal.note(f"{total - len(queue)} more wait behind these")
    if recovery:
        terminal.note(recovery["text"])
    return 0


def _row(group: QueueEntry, now_ms: int) -> tuple[str, ...]:
    reason = group.get("pending_reason")
    types = group.get("gpu_type") or []
    return (
        number(group.get("position")),
        group["name"],
        f"{number(group.get('n_nodes'))}x{number(group.get('per_node_gpu'))}"
        + (f" {'|'.join(types)}" if types else ""),
        PRIORITY_NAMES.get(group.get("priority", -1), UNKNOWN),
        age(moment_ms(group.get("created_at")), now_ms),
        group["group_id"],
        reason["text"] if reason else UNKNOWN,
    )


VERB = Verb(_add_arguments, _run)
