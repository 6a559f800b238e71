"""Rows of the mesh as the console keeps them: only what a screen shows, and every text safe for a terminal.

This is the one gate for rows of the change feed: what comes out of here may be painted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from console.core.format import moment_ms
from console.core.sanitize import sanitize, sanitize_all
from schemas.rules.checkpoints.at_risk import AtRisk, work_at_risk
from schemas.states import TERMINAL
from schemas.task_types import TRAINING, shown_shape

Raw = Mapping[str, Any]


class Group(NamedTuple):
    """One line of a list. Times are the server's Unix milliseconds. A tuple, because hundreds a second are made and
    compared where a mesh is busy."""

    id: str
    name: str
    status: str
    attempt: int
    user: str
    tenant: str
    priority: int
    nodes: tuple[str, ...]
    n_nodes: int | None
    per_node_gpu: int | None
    gpu_type: tuple[str, ...]
    framework: str
    submit_index: int
    created_ms: int | None
    started_ms: int | None
    ended_ms: int | None
    reason: str
    reason_code: str
    reason_details: Mapping[str, Any]
    failure: str
    failed_rank: int | None
    restarts: int
    ending: str = ""
    # What is computed since then is lost when it ends now; None where nothing runs.
    risk_since_ms: int | None = None
    task_type: str = TRAINING

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def gpus(self) -> int | None:
        return None if self.n_nodes is None or self.per_node_gpu is None else self.n_nodes * self.per_node_gpu

    @property
    def at_risk(self) -> AtRisk | None:
        return AtRisk(self.risk_since_ms, self.gpus) if self.risk_since_ms is not None and self.gpus else None

    @property
    def why(self) -> str:
        """A problem row's reason, for the list itself."""
        if self.status == "failed":
            rank = f"rank {self.failed_rank}: " if self.failed_rank is not None and "ank" not in self.failure else ""
            return rank + self.failure
        if self.status == "pending":
            return self.reason or ("waits for the scheduler" if not self.restarts else "waits again")
        if self.status == "recovering" and self.ending == "drained":
            return "leaves a node that is drained; its ranks save and end"
        if self.status == "recovering":
            return self.failure or "a host was lost; waits until every rank is gone"
        # What is usual needs no word.
        return "" if self.task_type == TRAINING else self.task_type


def queue_key(group: Group) -> tuple[int, int, str]:
    """Puts groups that wait in the order in which the scheduler considers them."""
    return (-group.priority, group.submit_index, group.id)


def group_of_row(row: Raw) -> Group:
    """A row of the feed, or a line of `/task-groups`: the same fields under two spellings of time."""
    document = row.get("document")
    shape = shown_shape(document) if isinstance(document, dict) else row
    reason, reason_code, reason_details = _reason(row)
    failure = row.get("failure")
    failure = failure if isinstance(failure, dict) else {}
    return Group(
        id=_text(row.get("group_id")),
        name=_text(row.get("name")),
        status=_text(row.get("status")),
        attempt=_whole(row.get("attempt")) or 0,
        user=_text(row.get("user")),
        tenant=_text(row.get("tenant")),
        priority=_whole(row.get("priority")) or 0,
        nodes=_texts(row.get("nodes")),
        n_nodes=_whole(shape.get("n_nodes")),
        per_node_gpu=_whole(shape.get("per_node_gpu")),
        gpu_type=_texts(shape.get("gpu_type")),
        framework=_text(shape.get("framework")),
        submit_index=_whole(row.get("submit_idx")) or 0,
        created_ms=_moment(row, "created"),
        started_ms=_moment(row, "started"),
        ended_ms=_moment(row, "ended"),
        reason=reason,
        reason_code=reason_code,
        reason_details=reason_details,
        failure=_text(failure.get("text")),
        failed_rank=_whole(failure.get("rank")),
        restarts=_whole(row.get("restarts")) or 0,
        ending=_text(row.get("ending")),
        risk_since_ms=_risk_since_ms(row),
        task_type=_text(row.get("task_type")) or TRAINING,
    )


def with_reason(group: Group, row: Raw) -> Group:
    """The group of a row that differs from its last one in nothing but why it waits."""
    reason, reason_code, reason_details = _reason(row)
    return group._replace(reason=reason, reason_code=reason_code, reason_details=reason_details)


def _reason(row: Raw) -> tuple[str, str, Mapping[str, Any]]:
    """(text, code, details)"""
    reason = row.get("pending_reason")
    if not isinstance(reason, dict):
        return "", "", {}
    details = sanitize_all(reason["details"]) if reason.get("details") else {}
    return _text(reason.get("text")), _text(reason.get("code")), details


def _risk_since_ms(row: Raw) -> int | None:
    if "document" not in row:
        return _whole(row.get("risk_since_ms"))
    risk = work_at_risk(row)
    return risk.since_ms if risk is not None else None


class OutOfService(NamedTuple):
    """What operators ordered of a node. drained: None unless it is drained, else how many groups were there when that
    began; empty: the drain is done; until_ms: how long groups may run on there, None where they are moved."""

    by: str
    reason: str
    drained: int | None
    empty: bool
    until_ms: int | None


def out_of_service(row: Raw) -> OutOfService | None:
    """None of a node that takes groups."""
    cordon, drain = row.get("cordon"), row.get("drain")
    if not isinstance(cordon, Mapping):
        return None
    if not isinstance(drain, Mapping):
        return OutOfService(_text(cordon.get("by")), _text(cordon.get("reason")), None, False, None)
    until_ms = _whole(drain.get("deadline_ms")) if drain.get("mode") == "wait" else None
    groups, empty = _whole(drain.get("groups")) or 0, drain.get("done_ms") is not None
    return OutOfService(_text(drain.get("by")), _text(drain.get("reason")), groups, empty, until_ms)


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    state: str
    reason: str
    api_addr: str
    voter: bool
    gpu_backend: str
    runtime: str
    version: str
    cpus: int | None
    memory_mb: int | None
    joined_ms: int | None
    lost_ms: int | None
    losses: int
    cards: tuple[tuple[str, str], ...]  # (uuid, type), by index
    engine_down: str = ""  # why it can start no container now
    service: OutOfService | None = None


def node_of_row(row: Raw) -> Node:
    cards = [gpu for gpu in row.get("gpus") or () if isinstance(gpu, Mapping)]
    return Node(
        id=_text(row.get("node_id")),
        state=_text(row.get("state")),
        reason=_text(row.get("reason")),
        api_addr=_text(row.get("api_addr")),
        voter=bool(row.get("voter_addr")),
        gpu_backend=_text(row.get("gpu_backend")),
        runtime=_text(row.get("runtime")),
        version=_text(row.get("version")),
        cpus=_whole(row.get("cpus")),
        memory_mb=_whole(row.get("memory_mb")),
        joined_ms=_whole(row.get("joined_ms")),
        lost_ms=_whole(row.get("lost_ms")),
        losses=_whole(row.get("losses")) or 0,
        cards=tuple((_text(gpu.get("uuid")), _text(gpu.get("type"))) for gpu in cards),
        engine_down=_text(row.get("engine_down")),
        service=out_of_service(row),
    )


@dataclass(frozen=True, slots=True)
class Hold:
    """Cards a rank has on a node. releasing: the rank is gone, the cards are not yet proved clean."""

    node: str
    group_id: str
    rank: int
    cards: tuple[str, ...]
    releasing: bool


def hold_of_row(key: str, row: Raw) -> Hold | None:
    parts = key.split("/")
    if len(parts) != 4 or not parts[3].isdigit():
        return None
    return Hold(_text(parts[0]), _text(parts[1]), int(parts[3]), _texts(row.get("gpus")), row.get("state") != "held")


@dataclass(frozen=True, slots=True)
class Task:
    rank: int
    attempt: int
    node: str
    cards: tuple[str, ...]
    status: str
    exit_code: int | None
    signal: int | None
    reason: str
    released: bool
    bound_ms: int | None
    started_ms: int | None
    ended_ms: int | None


def task_of_row(row: Raw) -> Task:
    return Task(
        rank=_whole(row.get("rank")) or 0,
        attempt=_whole(row.get("attempt")) or 0,
        node=_text(row.get("node")),
        cards=_texts(row.get("gpus")),
        status=_text(row.get("status")),
        exit_code=_whole(row.get("exit_code")),
        signal=_whole(row.get("signal")),
        reason=_text(row.get("reason")),
        released=bool(row.get("released")),
        bound_ms=_whole(row.get("bound_ms")),
        started_ms=_whole(row.get("started_ms")),
        ended_ms=_whole(row.get("ended_ms")),
    )


@dataclass(frozen=True, slots=True)
class Event:
    at_ms: int | None
    kind: str
    rank: int | None
    attempt: int | None
    node: str
    text: str


def event_of_row(row: Raw) -> Event:
    return Event(
        at_ms=_whole(row.get("at_ms")),
        kind=_text(row.get("kind")),
        rank=_whole(row.get("rank")),
        attempt=_whole(row.get("attempt")),
        node=_text(row.get("node")),
        text=_text(row.get("text")),
    )


def _text(value: object) -> str:
    if type(value) is str and value.isascii() and value.isprintable():
        return value  # most texts; a busy mesh sends hundreds of rows a second
    return "" if value is None else sanitize(value if isinstance(value, str) else str(value))


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (sanitize(value),)
    return tuple(_text(item) for item in value) if isinstance(value, list | tuple) else ()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(row: Raw, what: str) -> int | None:
    at = _whole(row.get(f"{what}_ms"))
    return at if at is not None else moment_ms(_text(row.get(f"{what}_at")) or None)
