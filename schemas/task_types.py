"""The kinds of work a group may be, and where its document says its shape."""

from collections.abc import Mapping
from typing import Any

TRAINING = "training"
INFERENCE = "inference"
CONTAINER = "container"
TASK_TYPES = (TRAINING, INFERENCE, CONTAINER)
# They run until somebody stops them: an end of their own is a failure, and they are built again.
ENDLESS = frozenset((INFERENCE,))


def type_of(document: Mapping[str, Any]) -> str:
    """Also of a document that was refused, or that another version accepted: the oldest type where it names none."""
    named = document.get("task_type")
    return str(named) if isinstance(named, str) and named else TRAINING


def part_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section that bears the type's name; empty where there is none."""
    part = document.get(type_of(document))
    return part if isinstance(part, Mapping) else {}


def shown_shape(document: Mapping[str, Any]) -> dict[str, Any]:
    """What lists show of a normalised document: n_nodes, per_node_gpu, gpu_type, framework, each None where there is
    none."""
    part, task = part_of(document), document.get("task")
    cards = task.get("gpu_required") if isinstance(task, Mapping) else None
    return {
        "n_nodes": part.get("n_nodes"),
        "per_node_gpu": part.get("per_node_gpu", cards),
        "gpu_type": part.get("gpu_type"),
        "framework": part.get("framework"),
    }
