"""Groups: lines of a list, one in full, what became of an action."""

from typing import Any, TypedDict

from schemas.api.checkpoint import NewestCheckpoint, StopAfter, WorkAtRisk
from schemas.api.problem import ProblemShown, Warned


class Reason(TypedDict):
    code: str
    text: str
    details: dict[str, Any]


# Of the rank that failed first. Written as a call because `class` is no name in Python.
Failure = TypedDict(
    "Failure",
    {
        "class": str,
        "rank": int | None,
        "exit_code": int | None,
        "signal": int | None,
        "text": str,
        "at": str | None,
    },
)


class Submitted(TypedDict):
    group_id: str
    status: str
    warnings: list[Warned]
    created_at: str


class GroupSummary(TypedDict):
    group_id: str
    name: str
    task_type: str
    status: str
    attempt: int
    tenant: str
    user: str
    priority: int
    n_nodes: int | None
    per_node_gpu: int | None
    gpu_type: list[str] | None
    framework: str | None
    nodes: list[str]
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    pending_reason: Reason | None
    failure: Failure | None
    restarts: int
    drains: int
    rebuilds: int


class Image(TypedDict):
    """What containers were made of. id: of the engine; digest: of the registry, None where none gave it."""

    id: str
    digest: str | None


class Task(TypedDict):
    """endpoints: HOST:PORT of each of task.ports by its name, while the task runs."""

    rank: int
    attempt: int
    node_id: str
    status: str
    gpus: list[str]
    port: int | None
    endpoints: dict[str, str]
    released: bool
    exit_code: int | None
    signal: int | None
    reason: str | None
    image: Image | None
    bound_at: str | None
    started_at: str | None
    ended_at: str | None


class RendezvousSeen(TypedDict):
    """state: formed, missing, silent, split."""

    state: str
    text: str
    at: str | None


class Limit(TypedDict):
    """over: `deadline_over` of a group that runs, `wait_over` of one that waits; at: when that fails it."""

    over: str
    at: str | None


class StopAsked(TypedDict):
    """deadline_at: None where it was stopped at once."""

    group_id: str
    status: str
    deadline_at: str | None


class Parent(TypedDict):
    """The group whose checkpoint this one began from. checkpoint_path: of that group; path: below it."""

    group_id: str
    checkpoint_path: str
    path: str
    step: int | None


class GroupDetail(GroupSummary):
    config: dict[str, Any]
    master: dict[str, Any] | None
    resume: dict[str, Any] | None
    on_isolation: str
    ending: str | None
    rollbacks: int
    warnings: list[Warned]
    resubmit_of: str | None
    parent: Parent | None
    submit_index: int
    image: Image | None
    rendezvous: RendezvousSeen | None
    limit: Limit | None
    saved: NewestCheckpoint | None
    at_risk: WorkAtRisk | None
    stop_after: StopAfter | None
    tasks: list[Task]


class GroupList(TypedDict):
    groups: list[GroupSummary]
    cursor: str | int | None


class GroupStatus(TypedDict):
    group_id: str
    status: str


class GroupDeleted(TypedDict):
    group_id: str
    deleted: bool


class BatchOutcome(TypedDict):
    """status: of the group after that, `deleted` where it is gone, None where it was refused."""

    group_id: str
    status: str | None
    problem: ProblemShown | None


class BatchOutcomes(TypedDict):
    """In the order of the request."""

    outcomes: list[BatchOutcome]


class FaultEvent(TypedDict):
    at: str | None
    kind: str
    rank: int | None
    attempt: int | None
    node_id: str | None
    text: str
    data: dict[str, Any]


class FaultEvents(TypedDict):
    group_id: str
    events: list[FaultEvent]
    cursor: int | None


class Raised(TypedDict):
    cluster_version: int


class QueueEntry(GroupSummary):
    """position: 1 is considered first."""

    position: int


class Recovery(TypedDict):
    """Of the groups that wait and the newest 500 others. interruptions: lost nodes and failures of the infrastructure
    that are over; recovered: of these, where the group ran again by itself. rate: None without any."""

    groups: int
    interruptions: int
    recovered: int
    rate: float | None
    text: str


class Queue(TypedDict):
    """total: how many wait, on this page or not. recovery: None but on the first page."""

    queue: list[QueueEntry]
    total: int
    cursor: str | None
    recovery: Recovery | None
