"""`.heteroflow/run-ATTEMPT.json`, written by the platform when an attempt starts: how many processes write."""

import re

from schemas.rules.checkpoints.view import Directory, Incomplete
from schemas.rules.checkpoints.whole_files import read_json

DIRECTORY = ".heteroflow"
_NAME = re.compile(r"run-[0-9]{1,9}\.json\Z")


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
