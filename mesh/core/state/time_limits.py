"""For how long groups may run and wait, and FailGroup: the leader says that one ran, waited, or stood still for that
long. A reducer compares no times; it is told, as it is told that a lease is over, and judges whether it still fits."""

from dataclasses import dataclass

from mesh.core.state.group import Group
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.settle import fail, finish
from mesh.core.state.shape import Shape, shape_of
from mesh.core.state.store import Row, StateStore
from schemas.rules.failure_classes import STALLED, UNSCHEDULABLE, WALLTIME
from schemas.states import FAILED, OVER_DEADLINE, OVER_WAIT, PENDING, RUNNING
from schemas.task_types import TRAINING

_CLASS = {OVER_DEADLINE: WALLTIME, OVER_WAIT: UNSCHEDULABLE}


@dataclass(frozen=True, slots=True)
class Limit:
    """due_ms, since_ms: leader's stamps; over: as in FailGroup."""

    attempt: int
    over: str
    since_ms: int
    due_ms: int


def limit_of(row: Row, shape: Shape) -> Limit | None:
    """Of a group that waits or runs, where its document sets one."""
    if row["status"] == PENDING and shape.max_wait_s is not None:
        since_ms = int(row.get("waits_since_ms") or row["created_ms"])
        return Limit(row["attempt"], OVER_WAIT, since_ms, since_ms + shape.max_wait_s * 1000)
    began_ms = row.get("runs_since_ms")
    if shape.deadline_s is None or began_ms is None or row["ending"] is not None:
        return None
    return Limit(row["attempt"], OVER_DEADLINE, int(began_ms), int(began_ms) + left_ms(row, shape.deadline_s))


def left_ms(row: Row, deadline_s: int) -> int:
    """For how long a group may still run, as of the last attempt that is over."""
    return deadline_s * 1000 - int(row.get("ran_ms", 0))


def fail_group(store: StateStore, idx: int, command: Row) -> Outcome:
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {command['group_id']} does not exist.")
    over = command["over"]
    wanted = PENDING if over == OVER_WAIT else RUNNING
    if group.status != wanted:
        return refused("wrong_status", f"group {group.id} is {group.status}, not {wanted}.", status=group.status)
    if command["attempt"] != group.attempt:
        return refused("wrong_attempt", f"group {group.id} is in attempt {group.attempt}, not {command['attempt']}.")
    if group.row["ending"] is not None:
        return refused("already_ending", f"attempt {group.attempt} of {group.id} is ending already.")
    text = _words(group, over, command.get("text", ""))
    if text is None:
        return refused("no_such_limit", f"group {group.id} has no such limit.")
    failure: Row = {"class": _CLASS.get(over, STALLED), "rank": None, "exit_code": None, "signal": None, "text": text}
    if over == OVER_WAIT:
        group.row["failure"] = {**failure, "at_ms": group.at_ms}
        group.move(FAILED, f"Failed: {text}", failure_class=failure["class"])
    else:
        fail(group, failure, over)
        finish(group)
    group.save()
    return done(group_id=group.id, status=group.status)


def _words(group: Group, over: str, told: str) -> str | None:
    """None where the document names no such limit."""
    shape = shape_of(group.row["document"])
    assert isinstance(shape, Shape)
    if over == OVER_DEADLINE:
        if shape.deadline_s is None:
            return None
        return f"It ran for its deadline_s of {shape.deadline_s} s."
    if over == OVER_WAIT:
        if shape.max_wait_s is None:
            return None
        reason = group.row["pending_reason"]
        last = f" Last it waited for: {reason['text']}" if reason else ""
        return f"It waited longer than its max_wait_s of {shape.max_wait_s} s.{last}"
    if shape.task_type != TRAINING:
        return None  # a service that nobody asks, and a shell, are silent by nature
    return f"It stood still: {told}."
