"""heteroflow show GROUP"""

import argparse
from typing import TYPE_CHECKING, Any

from console.cli.group_ref import group_id_of
from console.cli.ls import PRIORITY_NAMES, run_time, short_reason
from console.cli.options import whole
from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.format import UNKNOWN, age, byte_text, moment_ms, number, status_text, text_or_dash, utc_text
from schemas.api import GroupDetail, Image, Task

if TYPE_CHECKING:
    from console.client import MeshClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="id, or a name only one group has")
    parser.add_argument("--attempt", type=whole(1, 9999), help="ranks of this attempt instead of the newest")


async def _run(args: argparse.Namespace, terminal: Terminal, client: "MeshClient") -> int:
    group_id = await group_id_of(client, args.group)
    params = {"attempt": str(args.attempt)} if args.attempt else {}
    answer = await client.read(f"/api/v1/task-groups/{group_id}", params)
    group = answer.value
    if args.output == "json":
        terminal.json(group)
        return 0
    terminal.lines(_facts(group, answer.now_ms))
    tasks = group.get("tasks") or []
    if tasks:
        terminal.line()
        head = ("RANK", "NODE", "STATUS", "RUN", "EXIT", "CARDS", "NOTE")
        terminal.table(head, [_rank(task, answer.now_ms) for task in tasks], right=("RANK", "RUN"))
    elif group["status"] != "pending":
        terminal.line("\nno rank was placed in this attempt")
    for warning in group.get("warnings") or []:
        terminal.line(f"warning: {warning.get('message', '')}" if isinstance(warning, dict) else f"warning: {warning}")
    return 0


def _facts(group: GroupDetail, now_ms: int) -> list[str]:
    config = group.get("config") or {}
    training, task = config.get("training") or {}, config.get("task") or {}
    endpoints = [f"{name} {at}" for shown in group.get("tasks") or [] for name, at in shown["endpoints"].items()]
    nodes, each = group.get("n_nodes"), group.get("per_node_gpu")
    world = f"{number(nodes)} node{'s' * (nodes != 1)} x {number(each)} card{'s' * (each != 1)}"
    types = group.get("gpu_type")
    reason = short_reason(group)
    facts = [
        ("name", group["name"]),
        ("id", group["group_id"]),
        ("status", status_text(group["status"]) + (f": {reason}" if reason else "")),
        ("attempt", f"{number(group['attempt'])}{_repeats(group)}"),
        ("type", group["task_type"]),
        ("world", world + (f" of {' or '.join(types)}" if types else "")),
        *([("framework", text_or_dash(group.get("framework")))] if training else []),
        ("priority", PRIORITY_NAMES.get(group.get("priority", -1), UNKNOWN)),
        (
            "submitted",
            f"{utc_text(group.get('created_at'))} ({age(moment_ms(group.get('created_at')), now_ms)} ago)",
        ),
        ("run", run_time(group, now_ms)),
        *(_saved(group, training, now_ms) if training else []),
        *([("listens on", ", ".join(endpoints))] if endpoints else []),
        ("command", _command(task.get("command"))),
    ]
    if reference := task.get("image"):
        facts.append(("image", f"{reference}{_resolved(group.get('image'))}"))
    if meeting := group.get("rendezvous"):
        facts.append(("rendezvous", f"{meeting['state']}: {meeting['text']}"))
    if limit := group.get("limit"):
        what = "fails unless it runs by then" if limit["over"] == "wait_over" else "ends then, by its deadline_s"
        facts.append(("limit", f"{utc_text(limit.get('at'))} ({what})"))
    if again_of := group.get("resubmit_of"):
        facts.append(("again of", again_of))
    return [f"{label:<13} {value}" for label, value in facts]


def _saved(group: GroupDetail, training: dict[str, Any], now_ms: int) -> list[tuple[str, str]]:
    facts = [("checkpoints", text_or_dash(training.get("checkpoint_path")))]
    if newest := group.get("saved"):
        ago = age(moment_ms(newest.get("saved_at")), now_ms)
        facts.append(("last saved", f"{newest['name']}, {byte_text(newest['bytes'])}, {ago} ago"))
    if risk := group.get("at_risk"):
        facts.append(("at risk", risk["text"]))
    if asked := group.get("stop_after"):
        facts.append(("stops", f"after its next checkpoint, or {utc_text(asked.get('deadline_at'))}"))
    if parent := group.get("parent"):
        step = "" if parent["step"] is None else f", step {parent['step']}"
        facts.append(("parent", f"{parent['group_id']}{step}: {parent['path']}"))
    return [*facts, ("resumed from", text_or_dash((group.get("resume") or {}).get("path")))]


def _resolved(image: Image | None) -> str:
    """What the tag stood for when the newest attempt began."""
    if not image:
        return ""
    return f" ({image['digest']})" if image.get("digest") else f" ({image.get('id')}, of this host alone)"


def _repeats(group: GroupDetail) -> str:
    counts = {"restarts": group["restarts"], "rebuilds": group["rebuilds"], "rollbacks": group["rollbacks"]}
    parts = [f"{count} {name}" for name, count in counts.items() if count]
    return f" ({', '.join(parts)})" if parts else ""


def _command(command: Any) -> str:
    return " ".join(map(str, command)) if isinstance(command, list) else text_or_dash(command)


def _rank(task: Task, now_ms: int) -> tuple[str, ...]:
    exit_text = UNKNOWN
    if task.get("signal"):
        exit_text = f"signal {task['signal']}"
    elif task.get("exit_code") is not None:
        exit_text = str(task["exit_code"])
    cards = task.get("gpus") or []
    return (
        str(task["rank"]),
        text_or_dash(task.get("node_id")),
        text_or_dash(task.get("status")),
        run_time(task, now_ms),
        exit_text,
        str(len(cards)) if cards else UNKNOWN,
        str(task.get("reason") or ""),
    )


VERB = Verb(_add_arguments, _run)
