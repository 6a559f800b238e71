"""States of groups and tasks, their legal transitions, and the kinds of timeline events, as data.

A move with `live=False` belongs to machinery of a later version: it is drawn so that readers know the whole picture,
and no reducer makes it."""

from dataclasses import dataclass

PENDING = "pending"
SCHEDULING = "scheduling"
STARTING = "starting"
RUNNING = "running"
COMPLETED = "completed"
FAILED = "failed"
STOPPING = "stopping"
STOPPED = "stopped"
RECOVERING = "recovering"
PREEMPTING = "preempting"
PAUSING = "pausing"
PAUSED = "paused"
SLEEPING = "sleeping"

GROUP_STATUSES: dict[str, str] = {
    PENDING: "waits in the queue; nothing is bound",
    SCHEDULING: "cards are bound on every node and the agents are claiming them",
    STARTING: "every rank is claimed and ordered to start",
    RUNNING: "every rank has started",
    COMPLETED: "every rank exited 0",
    FAILED: "a rank failed, the request cannot work, or recovery was given up",
    STOPPING: "a user asked to stop; ranks are ending",
    STOPPED: "stopped by a user and every rank is gone",
    RECOVERING: "ended through no fault of its own; it goes back to the queue once every rank is proved gone",
    PREEMPTING: "a spot group has notice to checkpoint and leave",
    PAUSING: "a user paused it; ranks save and end",
    PAUSED: "every rank is gone; it keeps its place in line until it is resumed",
    SLEEPING: "an inference group that gave its memory back",
}
TERMINAL = frozenset({COMPLETED, FAILED, STOPPED})
ACTIVE = frozenset(GROUP_STATUSES) - TERMINAL
# Statuses in which an attempt exists on nodes.
PLACED = frozenset({SCHEDULING, STARTING, RUNNING, STOPPING, RECOVERING, PAUSING})


@dataclass(frozen=True, slots=True)
class Move:
    """One legal transition. kind: the event it writes; why: what brings it about."""

    source: str
    target: str
    kind: str
    why: str
    live: bool = True


GROUP_MOVES: tuple[Move, ...] = (
    Move(PENDING, SCHEDULING, "bound", "the scheduler found a place for every rank"),
    Move(SCHEDULING, STARTING, "starting", "every rank claimed its cards"),
    Move(STARTING, RUNNING, "running", "every rank started"),
    Move(RUNNING, COMPLETED, "completed", "every rank exited 0"),
    Move(SCHEDULING, PENDING, "rolled_back", "a claim failed, timed out, or a node was lost before anything started"),
    Move(SCHEDULING, FAILED, "failed", "a claim failed for good: the request itself cannot work"),
    Move(STARTING, FAILED, "failed", "a rank failed"),
    Move(RUNNING, FAILED, "failed", "a rank failed"),
    Move(
        STARTING,
        RECOVERING,
        "recovering",
        "a node was lost or is drained, the start timed out, or the host failed it",
    ),
    Move(RUNNING, RECOVERING, "recovering", "a node was lost or is drained, or the host failed it"),
    Move(RECOVERING, PENDING, "requeued", "every rank of the old attempt is gone"),
    Move(PENDING, STOPPED, "stopped", "a user stopped it before it was bound"),
    Move(SCHEDULING, STOPPING, "stopping", "a user stopped it"),
    Move(STARTING, STOPPING, "stopping", "a user stopped it"),
    Move(RUNNING, STOPPING, "stopping", "a user stopped it"),
    Move(RECOVERING, STOPPING, "stopping", "a user stopped it"),
    Move(STOPPING, STOPPED, "stopped", "every rank is gone"),
    Move(PENDING, FAILED, "failed", "it waited longer than max_wait_s"),
    Move(RECOVERING, FAILED, "failed", "its restarts are spent"),
    Move(RUNNING, PREEMPTING, "preempting", "a spot group must give way", live=False),
    Move(PREEMPTING, PENDING, "requeued", "every rank is gone", live=False),
    Move(PREEMPTING, STOPPING, "stopping", "a user stopped it", live=False),
    Move(RUNNING, PAUSING, "pausing", "a user paused it"),
    Move(PAUSING, PAUSED, "paused", "every rank is gone"),
    Move(PAUSING, STOPPING, "stopping", "a user stopped it"),
    Move(PAUSED, PENDING, "resumed", "a user resumed it"),
    Move(PAUSED, STOPPING, "stopping", "a user stopped it"),
    Move(RUNNING, SLEEPING, "sleeping", "an idle inference group was put to sleep", live=False),
    Move(SLEEPING, RUNNING, "running", "a request woke it", live=False),
    Move(SLEEPING, STOPPING, "stopping", "a user stopped it", live=False),
    # Of inference groups alone, and in the same command as the move to `failed`.
    Move(FAILED, PENDING, "rebuilding", "an inference group is built again after a failure"),
)
_GROUP_MOVE = {(move.source, move.target): move for move in GROUP_MOVES if move.live}

BOUND = "bound"
CLAIMED = "claimed"
EXITED = "exited"
LOST = "lost"
CANCELLED = "cancelled"

TASK_STATUSES: dict[str, str] = {
    BOUND: "cards are reserved; its agent has not claimed them yet",
    CLAIMED: "its agent holds cards, port and paths",
    STARTING: "ordered to start",
    RUNNING: "its process runs",
    EXITED: "its process ended and said how",
    LOST: "proved gone without an exit status: its host fenced itself, or came back without it",
    CANCELLED: "never started and never will",
}
GONE = frozenset({EXITED, LOST, CANCELLED})

# A report overtakes another when answers are lost, so a later fact may arrive first: a rank that exited has started,
# one that started was claimed. Nothing goes back, and nothing leaves a gone status.
TASK_MOVES: frozenset[tuple[str, str]] = frozenset(
    {
        (BOUND, CLAIMED),
        (BOUND, STARTING),
        (BOUND, RUNNING),
        (BOUND, EXITED),
        (BOUND, LOST),
        (BOUND, CANCELLED),
        (CLAIMED, STARTING),
        (CLAIMED, RUNNING),
        (CLAIMED, EXITED),
        (CLAIMED, LOST),
        (CLAIMED, CANCELLED),
        (STARTING, RUNNING),
        (STARTING, EXITED),
        (STARTING, LOST),
        (STARTING, CANCELLED),
        (RUNNING, EXITED),
        (RUNNING, LOST),
    }
)

# What a group resumes from where it is another group's: the `source` of that decision.
PARENT_CHECKPOINT = "parent_checkpoint"
CHECKPOINT_PATH = "checkpoint_path"
RESUME_FROM_CHECKPOINT = "resume_from_checkpoint"
# Why no rank can begin at the path that a document names.
RESUME_MISSING, RESUME_INCOMPLETE = "resume_missing", "resume_incomplete"

ORDER_CLAIM = "claim"
ORDER_START = "start"
ORDER_STOP = "stop"
ORDER_NONE = "none"

NODE_READY = "ready"
NODE_LOST = "lost"
# What a drain does with the groups of a node: lets them finish until its deadline, or moves them at once.
DRAIN_WAIT = "wait"
DRAIN_MOVE = "move"
DRAIN_MODES = (DRAIN_WAIT, DRAIN_MOVE)
# What may be said of how the ranks of an attempt met.
RENDEZVOUS_STATES = ("formed", "missing", "silent", "split")
# Their nodes run every task as a container of its image, and nothing else.
CONTAINER_RUNTIMES = frozenset({"docker"})

HELD = "held"
RELEASING = "releasing"

ISOLATION_STOP = "stop"
ISOLATION_KEEP = "keep"

PRIORITIES = {"normal": 0, "high": 1, "highest": 2}

# What an attempt is ending as, while its ranks are not all gone.
ENDING_FAILED = "failed"
ENDING_STOPPED = "stopped"
ENDING_ROLLBACK = "rollback"
ENDING_RECOVERING = "recovering"
ENDING_DRAINED = "drained"
ENDING_PAUSED = "paused"

# For how long a group may run, wait, or stand still; also the kind of event of one that ran or stood too long.
OVER_DEADLINE = "deadline_over"
OVER_WAIT = "wait_over"
OVER_STALL = "stalled"

EVENT_KINDS: dict[str, str] = {
    "submitted": "the group was accepted into the queue",
    "bound": "cards on every node were reserved for a new attempt",
    "claimed": "one rank's agent holds its cards, port and paths",
    "claim_failed": "one rank's agent could not claim, with the reason",
    "phase_continued": "a new leader goes on with an unfinished phase and a fresh deadline",
    "starting": "every rank was ordered to start; master address and resume decision are in the data",
    "rank_started": "one rank's process runs",
    "running": "every rank has started",
    "image_changed": "a rank runs another image than the attempt before, or than the other ranks",
    "rank_exited": "one rank's process ended, with exit code or signal and the agent's own time",
    "log_lost": "output of one rank did not come into its log; the log says where",
    "rank_lost": "one rank is proved gone without an exit status",
    "root_failure": "the first rank that failed; the others are being stopped",
    "deadline_over": "the group ran for its deadline_s; its ranks are told to save and end",
    "stalled": "no rank showed a sign of life for long; its ranks are told to save and end",
    "rolled_back": "the attempt was given up before it started, and the group waits again",
    "recovering": "the attempt ended through no fault of its own",
    "requeued": "every rank of the old attempt is gone; the group waits at its old place",
    "pausing": "a user asked to pause: the ranks are told to save and end",
    "paused": "every rank is gone; the group keeps its place until it is resumed",
    "resumed": "the group waits again at its old place",
    "stop_asked": "a user asked to stop after the next checkpoint; how long that is waited for is in the data",
    "rebuilding": "an inference group ended and waits to be built again; when, and how often that was, is in the data",
    "stopping": "a user asked to stop",
    "stopped": "the group was stopped",
    "completed": "every rank exited 0",
    "failed": "the group failed",
    "rendezvous_formed": "the ranks have found each other: one world",
    "rendezvous_missing": "some ranks have not joined the world, long after all were running",
    "rendezvous_silent": "rank 0 has not opened the port where the others look for it",
    "rendezvous_split": "the ranks run in several worlds, each training by itself",
    "exec_opened": "somebody started a program, or a shell, beside a running rank",
    "exec_ended": "that program ended, or was cut off",
    "node_draining": "a host with a rank of this group is drained; when the group has to leave is in the data",
    "node_undrained": "the drain of a host with a rank of this group was called off",
    "node_lost": "a host with a rank of this group was lost",
    "node_isolated": "a host with a rank of this group was lost; the rank keeps running there as on_isolation says",
    "node_returned": "a lost host with a rank of this group came back",
}


def group_move(source: str, target: str) -> Move | None:
    """The transition, or None where it is forbidden (or not yet made by this version)."""
    return _GROUP_MOVE.get((source, target))


def group_move_refusal(source: str, target: str) -> str | None:
    if (source, target) in _GROUP_MOVE:
        return None
    if source in TERMINAL:
        return f"a {source} group never becomes {target}"
    return f"a {source} group cannot become {target}"


def task_move_refusal(source: str, target: str) -> str | None:
    if (source, target) in TASK_MOVES:
        return None
    if source in GONE:
        return f"a rank that is {source} never becomes {target}"
    return f"a {source} rank cannot become {target}"
