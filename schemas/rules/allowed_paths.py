"""Which host directories a group may name. Compared by segments: `/data/` admits `/data/x`, never `/database`."""

from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT_ALLOWED_PATHS: tuple[str, ...] = (
    "/data/",
    "/tmp/heteroflow/",
    "/home/*/heteroflow/",
    "/opt/",
    "/mnt/",
    "/workspace/",
    "/root/models/",
)
# Where a container sees the directories of its group, and the field that names each on the host.
IN_TASK_PATHS: dict[str, str] = {
    "/checkpoint": "checkpoint_path",
    "/dataset": "dataset_path",
    "/base": "base_checkpoint",
}
# Where it sees those of the group whose checkpoint it begins from.
PARENT_IN_TASK = "/parent"
# Below it, by its own name, what it is told to resume from, where that lies in none of the others.
RESUME_IN_TASK = "/resume"


def path_refusal(path: str, allowed: Sequence[str]) -> str | None:
    """The reason why an absolute, normalised path may not be used, or None. `*` stands for exactly one segment."""
    if any(_within(_segments(path), _segments(root)) for root in allowed):
        return None
    return f"is {path}, which is under none of {' '.join(allowed)}"


def host_path(path: str, training: Mapping[str, Any]) -> str:
    """A path in terms of the task, as the host has it; any other, or one whose field is not given, stays what it is."""
    for root, field in IN_TASK_PATHS.items():
        home = training.get(field)
        if home is not None and (path == root or path.startswith(root + "/")):
            return str(home) + path[len(root) :]
    return path


def _segments(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _within(path: list[str], root: list[str]) -> bool:
    return len(path) >= len(root) and all(want in ("*", have) for want, have in zip(root, path, strict=False))
