"""What running groups and cards say: curves, samples, alerts."""

from typing import Any, TypedDict


class LastPoint(TypedDict):
    """loss, wall (Unix seconds by the writer's clock), age_s: NaN and infinities as text."""

    step: int
    loss: float | str
    wall: float | str
    age_s: float | str


class Curves(TypedDict):
    """state: no_log, no_points, live, stale, restarted, unreadable, nan or probe_failed. summary: of each tag as
    `heteroflow curves --json` prints it. tags: `{tag: [[step, wall, value], ...]}`, thinned. node_id: the host of rank
    0, which has the files."""

    group_id: str
    attempt: int
    node_id: str | None
    state: str
    text: str
    loss_tag: str | None
    last: LastPoint | None
    summary: dict[str, Any]
    tags: dict[str, list[list[Any]]]


class CardSample(TypedDict):
    """util: percent. None is what could not be read, which is not 0."""

    uuid: str
    util: float | None
    memory_used_mb: int | None
    temperature_c: int | None
    power_w: float | None


class RankNow(TypedDict):
    rank: int
    node_id: str
    running: bool
    cpu_percent: float | None
    log_silent_s: float | None
    cards: list[CardSample]


class ReportNow(TypedDict):
    """What rank 0 told of itself through heteroflow_report. age_s: since its step changed."""

    step: int | None
    loss: float | str | None
    lr: float | str | None
    epoch: float | str | None
    phase: str | None
    metrics: dict[str, float | str]
    age_s: float | str


class GroupNow(TypedDict):
    """gpu_util: mean of the cards that tell; gpus_unknown of gpus do not. stall: moving, stalled or unjudged."""

    group_id: str
    attempt: int
    loss_tag: str | None
    step: int | None
    loss: float | str | None
    wall: float | str | None
    age_s: float | str | None
    report: ReportNow | None
    curve_state: str | None
    curve_text: str | None
    gpu_util: float | None
    gpus: int
    gpus_unknown: int
    simulated: bool
    stall: str
    stall_text: str
    ranks: list[RankNow]


class NodeNow(TypedDict):
    node_id: str
    simulated: bool
    tasks: int
    cards: list[CardSample]


class Telemetry(TypedDict):
    """Groups of which any rank is alive, as the nodes last said to the leader."""

    leader: str
    groups: list[GroupNow]
    nodes: list[NodeNow]
    cursor: str | None


class Alert(TypedDict):
    """rule: stalled, rendezvous, loss_not_finite, clock_skew or certificate. level: critical or warning. state: raised
    or cleared. group_id and attempt are None where a node is meant, node_id where a group is."""

    id: str
    rule: str
    group_id: str | None
    attempt: int | None
    node_id: str | None
    level: str
    text: str
    advice: str
    state: str
    since: str
    since_ms: int
    cleared: str | None


class Alerts(TypedDict):
    leader: str
    alerts: list[Alert]
    cursor: str | None


class TaskSample(TypedDict):
    at: str
    at_ms: int
    cpu_percent: float | None
    step: int | None
    loss: float | str | None
    cards: list[CardSample]


class GpuMetrics(TypedDict):
    """state: live, ended, no_samples or probe_failed. now: None unless it runs. samples: oldest first, 10 s apart."""

    task_id: str
    group_id: str
    attempt: int
    rank: int
    node_id: str
    status: str
    state: str
    text: str
    simulated: bool | None
    now: list[CardSample] | None
    samples: list[TaskSample]


class CardHistory(TypedDict):
    """As GpuMetrics, by the host that has the samples."""

    state: str
    text: str
    simulated: bool | None
    now: list[CardSample] | None
    samples: list[TaskSample]
