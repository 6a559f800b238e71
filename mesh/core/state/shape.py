"""What a group asks of the mesh, read from its normalised document."""

from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Any

from schemas.limits import GPUS_PER_NODE_MAX, INT_MAX, NODES_MAX, RESTARTS_MAX
from schemas.states import ISOLATION_KEEP, ISOLATION_STOP, PRIORITIES
from schemas.task_types import ENDLESS


@dataclass(frozen=True, slots=True)
class Shape:
    """gpu_types: acceptable types in order of preference, empty = any; resume: an explicit path, which every attempt
    keeps; ports: each rank listens on them, on its own node; endless: it runs until somebody stops it; deadline_s: of
    running; max_wait_s: of waiting; max_restarts: None where nobody asked for restarts, then lost nodes alone restart
    it, without an end; restart_on: classes of failure that restart it."""

    name: str
    task_type: str
    priority: int
    on_isolation: str
    n_nodes: int
    per_node_gpu: int
    gpu_types: tuple[str, ...]
    checkpoint_path: str | None
    resume: str | None
    in_container: bool
    framework: str | None
    ports: tuple[int, ...]
    endless: bool
    deadline_s: int | None
    max_wait_s: int | None
    max_restarts: int | None
    restart_on: tuple[str, ...]


def shape_of(document: Mapping[str, Any]) -> Shape | str:
    """The shape, or the reason why the document has none. Total: the log may hold what another version's checks let
    through."""
    task_type = document.get("task_type", "training")
    body = _map(document.get(task_type)) if isinstance(task_type, str) else {}
    task = _map(document.get("task"))
    name = document.get("name", "")
    priority = document.get("priority", "normal")
    isolation = document.get("on_isolation", ISOLATION_STOP)
    n_nodes = body.get("n_nodes", 1)
    per_node = body.get("per_node_gpu", task.get("gpu_required", 0))
    types = body.get("gpu_type") or ()
    recovery = _map(body.get("recovery"))
    on = recovery.get("on")
    if not isinstance(name, str) or not name or not isinstance(task_type, str):
        return "the document has no name or no task_type"
    if not isinstance(priority, str) or priority not in PRIORITIES:
        return f"priority {priority!r:.40} is not one of {', '.join(PRIORITIES)}"
    if isolation not in (ISOLATION_STOP, ISOLATION_KEEP):
        return f"on_isolation {isolation!r:.40} is neither stop nor keep"
    if not _within(n_nodes, 1, NODES_MAX):
        return f"n_nodes {n_nodes!r:.40} is not a whole number from 1 to {NODES_MAX}"
    if not _within(per_node, 0, GPUS_PER_NODE_MAX):
        return f"per_node_gpu {per_node!r:.40} is not a whole number from 0 to {GPUS_PER_NODE_MAX}"
    ports = sorted(_map(task.get("ports")).values(), key=str)
    if not all(_within(port, 1, 65_535) for port in ports) or len(set(ports)) < len(ports):
        return "task.ports are not different whole numbers from 1 to 65535"
    if isinstance(types, str):
        types = (types,)
    if not isinstance(types, list | tuple) or not all(isinstance(item, str) for item in types):
        return "gpu_type is neither text nor a list of texts"
    checkpoint = _text(body.get("checkpoint_path"))
    return Shape(
        name=name,
        task_type=task_type,
        priority=PRIORITIES[priority],
        on_isolation=isolation,
        n_nodes=n_nodes,
        per_node_gpu=per_node,
        gpu_types=tuple(types),
        checkpoint_path=_same_path(checkpoint) if checkpoint else None,
        resume=_text(body.get("resume_from_checkpoint")),
        in_container=_text(task.get("image")) is not None,
        framework=_text(body.get("framework")),
        ports=tuple(ports),
        endless=task_type in ENDLESS,
        deadline_s=_seconds(body.get("deadline_s")),
        max_wait_s=_seconds(body.get("max_wait_s")),
        max_restarts=most if _within(most := recovery.get("max_restarts"), 0, RESTARTS_MAX) else None,
        restart_on=tuple(item for item in on if isinstance(item, str)) if isinstance(on, list | tuple) else (),
    )


def _same_path(path: str) -> str:
    """One spelling for one path; POSIX lets normpath keep a double slash in front."""
    plain = normpath(path)
    return "/" + plain.lstrip("/") if plain.startswith("/") else plain


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _seconds(value: object) -> int | None:
    return value if isinstance(value, int) and _within(value, 1, INT_MAX) else None


def _within(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
