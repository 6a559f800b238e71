"""Desired against observed, one task at a time: rows and the runtime's list in, idempotent actions out.

Level-triggered: nothing is remembered between calls. Whatever was lost (an answer, a crash, a restart) is seen again as
a difference and acted on again; every action is safe to repeat.

A report's sequence number is the rank of its kind. A task's life passes each kind at most once, so that is monotonic,
needs no file and survives every restart; a repeated report is the same report. What a log has lost is no step of a
life: it is said when it has doubled and once more at the end, so that a flood of output is no flood of reports.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from agentd.runtime.base import Observed, TaskId
from schemas.states import GONE, ORDER_CLAIM, ORDER_START, ORDER_STOP, RUNNING, STARTING

ReportKind = Literal["claimed", "claim_failed", "started", "exited", "released", "log_lost"]
SEQ: dict[ReportKind, int] = {
    "claimed": 1,
    "claim_failed": 2,
    "started": 3,
    "exited": 4,
    "released": 5,
    "log_lost": 6,
}


@dataclass(frozen=True, slots=True)
class Order:
    """A task row of this node that still holds its cards. log_lost: bytes of its output that the row knows to be
    lost."""

    key: TaskId
    token: int
    order: str  # claim, start, stop, none
    status: str
    seq: int = 0
    log_lost: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of this agent process; it dies with the process."""

    token: int
    state: str  # working, held, failed


@dataclass(frozen=True, slots=True)
class MakeClaim:
    key: TaskId
    token: int


@dataclass(frozen=True, slots=True)
class DropClaim:
    key: TaskId
    why: str


@dataclass(frozen=True, slots=True)
class Start:
    key: TaskId
    token: int


@dataclass(frozen=True, slots=True)
class Stop:
    key: TaskId
    why: str


@dataclass(frozen=True, slots=True)
class Remove:
    key: TaskId


@dataclass(frozen=True, slots=True)
class Report:
    key: TaskId
    token: int
    kind: ReportKind

    @property
    def seq(self) -> int:
        return SEQ[self.kind]


Action = MakeClaim | DropClaim | Start | Stop | Remove | Report


def reconcile(
    orders: Iterable[Order], seen: Iterable[Observed], claims: Mapping[TaskId, Claim], lease_granted: bool
) -> list[Action]:
    """Actions in key order; stops and drops of a task come before anything new of another may need its cards."""
    wanted = {order.key: order for order in orders}
    present = {item.id: item for item in seen}
    actions: list[Action] = []
    for key in sorted(wanted.keys() | present.keys() | claims.keys()):
        actions += _reconcile_task(key, wanted.get(key), present.get(key), claims.get(key), lease_granted)
    return sorted(actions, key=lambda action: isinstance(action, MakeClaim | Start))


def _reconcile_task(
    key: TaskId, order: Order | None, seen: Observed | None, claim: Claim | None, lease_granted: bool
) -> list[Action]:
    if order is None:
        return [*_drop(key, claim, "the mesh has passed this order by"), *_clear(seen, "superseded")]
    if claim is not None and claim.token != order.token:
        return _drop(key, claim, "another bind took its place")
    if seen is not None and seen.token != order.token:
        return _clear(seen, "superseded")
    if claim is not None and not lease_granted:
        return _drop(key, claim, "the lease of this node lapsed")
    if order.status in GONE:
        # The runtime lets go of the cards first; that they are free is said when nothing of the task is left to see.
        drop = _drop(key, claim, f"the task is {order.status}")
        return [
            *drop,
            *(_clear(seen, f"the task is {order.status}") if seen is not None else _report(order, "released")),
        ]
    if order.order == ORDER_CLAIM:
        return _claim(order, seen, claim, lease_granted)
    if order.order == ORDER_START:
        return _start(order, seen, claim, lease_granted)
    return _end(order, seen, claim)


def _claim(order: Order, seen: Observed | None, claim: Claim | None, lease_granted: bool) -> list[Action]:
    if seen is not None:
        return _clear(seen, "running without an order to start")
    if claim is None:
        return [MakeClaim(order.key, order.token)] if lease_granted and order.seq < SEQ["claim_failed"] else []
    if claim.state == "held":
        return _report(order, "claimed")
    return _report(order, "claim_failed") if claim.state == "failed" else []


def _start(order: Order, seen: Observed | None, claim: Claim | None, lease_granted: bool) -> list[Action]:
    if seen is None and order.status == RUNNING:
        # Its directory is gone, so it cannot run: it is over, and how is not known.
        return _report(order, "exited")
    if seen is None:
        # Claimed before a restart of this agent, started after it: the claim is made again before anything starts. The
        # others may run by now, so a claim that fails here is no failed claim but a rank that ended without starting.
        if claim is None:
            return [MakeClaim(order.key, order.token)] if lease_granted else []
        if claim.state == "held":
            return [Start(order.key, order.token)]
        return _report(order, "exited") if claim.state == "failed" else []
    drop = _drop(order.key, claim, "started")
    if seen.state == "starting":
        return drop
    if seen.state == "running":
        return [*drop, *_report(order, "started"), *_log_lost(order, seen)]
    return [*drop, *_exited(order, seen)]


def _end(order: Order, seen: Observed | None, claim: Claim | None) -> list[Action]:
    drop = _drop(order.key, claim, "the mesh ordered a stop")
    if seen is None:
        return [*drop, *_report(order, "exited" if order.status in (STARTING, RUNNING) else "released")]
    if seen.state != "exited":
        return [*drop, *([] if seen.stopping or order.order != ORDER_STOP else [Stop(order.key, "stopped")])]
    return [*drop, *_exited(order, seen)]


def _exited(order: Order, seen: Observed) -> list[Action]:
    """In life order, also for a task that ended before anyone heard that it began."""
    return [*_report(order, "started"), *_log_lost(order, seen), *_report(order, "exited")]


def _log_lost(order: Order, seen: Observed) -> list[Action]:
    enough = order.log_lost if seen.state == "exited" else 2 * order.log_lost
    return [Report(order.key, order.token, "log_lost")] if seen.log_lost > enough else []


def _report(order: Order, kind: ReportKind) -> list[Action]:
    return [Report(order.key, order.token, kind)] if order.seq < SEQ[kind] else []


def _drop(key: TaskId, claim: Claim | None, why: str) -> list[Action]:
    return [] if claim is None else [DropClaim(key, why)]


def _clear(seen: Observed | None, why: str) -> list[Action]:
    if seen is None:
        return []
    if seen.state == "exited":
        return [Remove(seen.id)]
    return [] if seen.stopping else [Stop(seen.id, why)]
