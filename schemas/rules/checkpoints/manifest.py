"""`.heteroflow/run-NUMBER.json`, written by the platform when an attempt starts: what runs, from where, and how many
processes write. NUMBER is the attempt's place in the log of the mesh: it grows over all groups of a directory."""

import re
from collections.abc import Mapping
from typing import Any

from schemas.rules.checkpoints.view import Directory, Incomplete
from schemas.rules.checkpoints.whole_files import read_json
from schemas.rules.redaction import redact
from schemas.task_types import part_of

DIRECTORY = ".heteroflow"
_NAME = re.compile(r"run-([0-9]{1,18})\.json\Z")
# A launcher that the guards hold to one process a card. A script of its own may start as many as it likes.
_OWN_LAUNCHER = "script"


def manifest_name(token: int) -> str:
    return f"run-{token}.json"


def manifest_number(name: str) -> int | None:
    match = _NAME.match(name)
    return int(match[1]) if match else None


def manifest_of(group: Mapping[str, Any], started_at: str) -> dict[str, Any]:
    """group: its row as the attempt starts. Whoever reads the directory reads this: no secret is in it."""
    body = part_of(group["document"])
    nodes, cards = len(group["nodes"]), body.get("per_node_gpu")
    world = nodes * cards if isinstance(cards, int) and body.get("launcher") != _OWN_LAUNCHER else 0
    return {
        "group_id": group["group_id"],
        "name": group["name"],
        "attempt": group["attempt"],
        "framework": body.get("framework"),
        "world": world or None,
        "ranks": [{"rank": rank, "node": node} for rank, node in enumerate(group["nodes"])],
        "resume": group["resume"],
        "started_at": started_at,
        "config": redact(group["document"]),
    }


def world_of(root: Directory, checkpoint: Directory) -> int | None:
    """The world size of the newest run that began before the last file of the checkpoint was written; None where no
    manifest tells."""
    if root.names().get(DIRECTORY) != "directory":
        return None
    try:
        written_ns = max(checkpoint.stat(name).mtime_ns for name in checkpoint.names())
        with root.open(DIRECTORY) as directory:
            runs = [(directory.stat(name).mtime_ns, name) for name in directory.names() if _NAME.match(name)]
            before = [run for run in runs if run[0] <= written_ns]
            world = read_json(directory, max(before)[1]).get("world") if before else None
    except Incomplete:
        return None
    return world if type(world) is int and world > 0 else None
