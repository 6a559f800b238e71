"""Shapes of the API's answers, as both sides know them.

Times are ISO-8601 UTC text or None; what the state does not know is None.
"""

from typing import Any, NotRequired, TypedDict

HEADER_INDEX = "X-HeteroFlow-Index"
HEADER_AGE_MS = "X-HeteroFlow-Age-Ms"
HEADER_NODE = "X-HeteroFlow-Node"
HEADER_REQUEST_ID = "Idempotency-Key"


class FindingShown(TypedDict):
    code: str
    path: str
    message: str
    hint: str


class ProblemShown(TypedDict):
    """Every refusal. code: stable, for programs; field: dotted path of the first offending field, "" where there is
    none; findings: everything wrong."""

    code: str
    message: str
    hint: str
    field: str
    findings: list[FindingShown]
    status: int


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


class Warned(TypedDict):
    code: str
    path: str
    message: str
    hint: str


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


class NewestCheckpoint(TypedDict):
    """As the host of rank 0 last saw it. attempt: None where it was there before this group's attempts."""

    name: str
    step: int | None
    bytes: int
    saved_at: str | None
    attempt: int | None


class WorkAtRisk(TypedDict):
    """since: the last checkpoint of this attempt where `saved`, else its start."""

    gpu_hours: float
    since: str | None
    saved: bool
    text: str


class StopAfter(TypedDict):
    by: str
    at: str | None
    deadline_at: str | None


class Restore(TypedDict):
    """result: `went_on` where that attempt saved a later one, `completed`, `under_way` or `ended_before_the_next`."""

    attempt: int
    result: str


class Checkpoint(TypedDict):
    """name: below checkpoint_path. attempt: that wrote it, None where it was there before. why: what is wrong with one
    that is not complete. took_s: from its first file to its last; after_s: since the one before. removed_at: by
    keep_last_n."""

    name: str
    step: int | None
    attempt: int | None
    complete: bool
    why: str
    bytes: int | None
    files: int | None
    saved_at: str | None
    took_s: float | None
    after_s: float | None
    restores: list[Restore]
    removed_at: str | None


class Checkpoints(TypedDict):
    group_id: str
    checkpoint_path: str | None
    keep_last_n: int | None
    at_risk: WorkAtRisk | None
    checkpoints: list[Checkpoint]


class StopAsked(TypedDict):
    """deadline_at: None where it was stopped at once."""

    group_id: str
    status: str
    deadline_at: str | None


class GroupDetail(GroupSummary):
    config: dict[str, Any]
    master: dict[str, Any] | None
    resume: dict[str, Any] | None
    on_isolation: str
    ending: str | None
    rollbacks: int
    warnings: list[Warned]
    resubmit_of: str | None
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


class Card(TypedDict):
    """state: free, held, or releasing (ended, but not yet proved clean)."""

    uuid: str
    type: str
    memory_mb: int
    index: int
    state: str


class GossipView(TypedDict):
    """What the agent asked believes of a node, which decides nothing. state: alive, suspect, dead or left, since_s ago.
    addr: HOST:PORT. version: None where the node does not say."""

    state: str
    incarnation: int
    since_s: float
    addr: str
    version: str | None


class NodeDifference(TypedDict):
    """kind: only_log, only_gossip, state, uid, addr or version. text: what differs, and what follows from it."""

    node_id: str
    kind: str
    text: str


class Asked(TypedDict):
    """An operator's order that stands."""

    by: str
    reason: str
    at: str | None


class Drain(Asked):
    """mode: wait or move. groups: there when it began; left: that still have something on the node; moved: sent
    elsewhere. done_at: when the node was empty."""

    mode: str
    deadline_at: str | None
    groups: int
    left: int
    moved: int
    done_at: str | None


class Maintenance(Asked):
    """open: between from_at and until_at, by the leader's clock."""

    from_at: str | None
    until_at: str | None
    mode: str
    deadline_s: int
    open: bool


class MeshHold(Asked):
    """left_s: until nodes are given up again, as last written down by the leader. released: no lease is granted longer
    any more, but some that were still stand."""

    until_at: str | None
    left_s: int
    released: bool


class Held(TypedDict):
    until_at: str | None


class Released(TypedDict):
    """left_s: until the last of the longer leases has run out."""

    left_s: int


class NodeInService(TypedDict):
    node_id: str
    cordoned: bool


class Drained(NodeInService):
    """groups: how many there are to leave."""

    groups: int
    deadline_at: str | None


class Window(TypedDict):
    node_id: str
    from_at: str | None
    until_at: str | None


class NodeNamed(TypedDict):
    node_id: str


class Paused(TypedDict):
    paused: bool


class Raised(TypedDict):
    cluster_version: int


class Node(TypedDict):
    """lease_age_ms: since the last renewal, known where the agent asked is with the leader. engine_down: why no
    container can be started there now; reason says so too where the node is ready. gossip: None where the agent asked
    knows nothing of it by gossip."""

    node_id: str
    state: str
    reason: str | None
    engine_down: str | None
    api_addr: str
    addresses: list[str]
    voter: bool
    gpu_backend: str
    runtime: str
    labels: dict[str, str]
    version: str
    cpus: int
    memory_mb: int
    joined_at: str | None
    lost_at: str | None
    losses: int
    gpus: list[Card]
    gpus_total: int
    gpus_free: int
    gpus_held: int
    gpus_releasing: int
    cordon: Asked | None
    drain: Drain | None
    maintenance: Maintenance | None
    lease_age_ms: int | None
    gossip: GossipView | None


class NodeList(TypedDict):
    """differences: where the log and gossip do not say the same; [] while gossip does not run."""

    nodes: list[Node]
    differences: list[NodeDifference]
    cursor: str | None


class GossipMember(GossipView):
    node_id: str


class GossipList(TypedDict):
    """members: as the agent asked sees them, itself too."""

    members: list[GossipMember]
    differences: list[NodeDifference]
    cursor: str | None


class QueueEntry(GroupSummary):
    """position: 1 is considered first."""

    position: int


class Queue(TypedDict):
    """total: how many wait, on this page or not."""

    queue: list[QueueEntry]
    total: int
    cursor: str | None


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


class WhoAmI(TypedDict):
    """kind: mesh (the mesh token), node or person (an API key, whose id is key_id). scopes: None where the role is not
    narrowed."""

    kind: str
    name: str
    role: str
    tenant: str
    key_id: str | None
    scopes: list[str] | None
    permissions: list[str]
    sees_all_tenants: bool
    expires_at: str | None


class AccessToken(TypedDict):
    token: str
    token_type: str
    expires_at: str


class ApiKey(TypedDict):
    """state: good, expired or revoked. scopes: None where the role is not narrowed."""

    key_id: str
    name: str
    role: str
    tenant: str
    scopes: list[str] | None
    state: str
    made_at: str
    made_by: str
    expires_at: str | None
    revoked_at: str | None
    revoked_by: str | None


class KeyList(TypedDict):
    keys: list[ApiKey]
    cursor: str | None


class NewKey(TypedDict):
    """key: the secret, told this once."""

    key_id: str
    key: str
    name: str
    role: str
    tenant: str
    scopes: list[str] | None
    expires_at: str | None


class KeyRevoked(TypedDict):
    key_id: str
    name: str
    revoked: bool


class AuditEntry(TypedDict):
    """who, kind, key_id: as in WhoAmI. node_id: the agent that took the request. code: of a refusal, else empty."""

    number: int
    at: str
    who: str
    kind: str
    key_id: str | None
    node_id: str
    what: str
    target: str | None
    details: dict[str, str]
    ok: bool
    code: str


class Audit(TypedDict):
    entries: list[AuditEntry]
    cursor: int | None


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


class Health(TypedDict):
    """status: joining, ok or degraded."""

    status: str
    reasons: list[str]


class NodeReport(TypedDict):
    """Without secrets. problem: why there is no more than that; config: as the agent was started; health: as /healthz;
    host: of its kernel, memory and disk; logs: the end of each, by file; voter: the mesh as the agent's voter sees
    it."""

    node_id: str
    problem: NotRequired[str]
    at: NotRequired[str]
    versions: NotRequired[dict[str, str]]
    config: NotRequired[dict[str, Any]]
    health: NotRequired[dict[str, Any]]
    host: NotRequired[dict[str, Any]]
    logs: NotRequired[dict[str, str]]
    voter: NotRequired[dict[str, Any]]


class MeshShown(TypedDict):
    """consensus: as the voter sees it that the agent is with; agent: the one that answers."""

    cluster_id: str | None
    epoch: int | None
    cluster_version: int | None
    profile: str | None
    created_at: str | None
    voters: list[dict[str, Any]]
    scheduling_paused: Asked | None
    hold: MeshHold | None
    consensus: dict[str, Any]
    agent: dict[str, Any]


class FileEntry(TypedDict):
    """type: file, directory, link or other. size: in bytes, None of what is no file. tag: of the state that a file is
    in, as the ETag of its content; None of what is no file."""

    name: str
    type: str
    size: int | None
    modified_at: str
    tag: str | None


class FileMount(TypedDict):
    """target: as a task in a container sees it; source: as its host has it."""

    target: str
    source: str
    read_only: bool


class FileList(TypedDict):
    """type: of what was asked for: directory, file, link or other, or mounts where no target_path was given.
    target_path: as a task in a container sees it; entries: in the order of their bytes, itself where it is no
    directory; cut: the directory has more names than are looked at."""

    group_id: str
    attempt: int
    rank: int
    node_id: str
    target_path: str
    type: str
    mounts: list[FileMount]
    entries: list[FileEntry]
    cursor: str | None
    cut: bool


class FileWritten(TypedDict):
    """received: so many bytes are on the disk, from the first on; complete: it is all, and the file stands there;
    sha256: of the whole, None before."""

    target_path: str
    node_id: str
    received: int
    complete: bool
    sha256: str | None
