"""A small document that is right, and ways to make it wrong."""

import copy
from typing import Any

from schemas.errors import Finding
from schemas.task_group import check_task_group

GOOD: dict[str, Any] = {
    "name": "llama-ft math",
    "task_type": "training",
    "training": {
        "framework": "ddp",
        "n_nodes": 2,
        "per_node_gpu": 4,
        "checkpoint_path": "/data/ckpt/llama",
        "hyper_params": {"lr": "1e-4"},
    },
    "task": {"command": "torchrun t.py", "gpu_required": 4},
}


def good(**changes: Any) -> dict[str, Any]:
    """GOOD with dotted fields replaced (`training__n_nodes=3`) or, given DELETED, removed."""
    document = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *parents, name = path.split("__")
        holder = document
        for parent in parents:
            holder = holder[parent]
        if value is DELETED:
            holder.pop(name, None)
        else:
            holder[name] = value
    return document


DELETED = object()


def errors_at(document: object, path: str) -> list[Finding]:
    return [finding for finding in check_task_group(document).errors if finding.path == path]


def codes(document: object) -> dict[str, str]:
    """Path to code of every error."""
    return {finding.path: finding.code for finding in check_task_group(document).errors}


def accepted(document: object) -> dict[str, Any]:
    checked = check_task_group(document)
    assert checked.document is not None, checked.errors
    return checked.document
