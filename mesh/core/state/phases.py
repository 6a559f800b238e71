"""StartGroup, ContinuePhase, RollbackGroup: what the controllers decide about an attempt that is not running yet."""

from mesh.core.state.agreement import (
    STORAGE_NOT_SHARED,
    TRIED_AGAIN,
    disagreement,
    found_there,
    no_beginning,
    out_of_tries,
    storage_failure,
)
from mesh.core.state.group import Group
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.penalty import penalise
from mesh.core.state.reach import way_there
from mesh.core.state.saves import note_restore
from mesh.core.state.settle import fail, finish, roll_back
from mesh.core.state.store import Row, StateStore
from schemas.limits import PHASE_TRIES
from schemas.states import ORDER_START, PARENT_CHECKPOINT, SCHEDULING, STARTING
from schemas.task_types import TRAINING


def start_group(store: StateStore, idx: int, command: Row) -> Outcome:
    group, refusal = _attempt(store, command, (SCHEDULING,))
    if group is None:
        return refusal
    everyone = list(range(group.world()))
    if group.row["claimed"] != everyone or sorted(command["claimed"]) != everyone:
        return refused(
            "not_all_claimed",
            f"{len(group.row['claimed'])} of {len(everyone)} ranks of {group.id} are claimed; "
            "none starts before all are.",
        )
    if command["master"]["port"] != group.row["master"]["port"]:
        return refused(
            "wrong_port",
            f"rank 0 of {group.id} holds port {group.row['master']['port']}, not {command['master']['port']}.",
        )
    views = group.row.get("views") or []
    if said := disagreement(views):
        return refused(STORAGE_NOT_SHARED, said)
    if (why := no_beginning(views)) is not None:
        return refused(*why)
    group.row.pop("unshared", None)
    group.row["master"] = dict(command["master"])
    group.row["resume"] = command["resume"]
    # Absent where nobody asked for it, and left from an earlier attempt never.
    group.row.pop("addresses", None)
    if "addresses" in command:
        group.row["addresses"] = list(command["addresses"])
    group.row["phase_deadline_tries"] = 0
    note_restore(group, command["resume"])
    for task in group.tasks():
        group.move_task(task, STARTING)
        task["order"] = ORDER_START
        group.put_task(task)
    resume = command["resume"]
    from_what = _from_what(group.row, resume)
    from_what += found_there(group.row) + way_there(group.row.get("reach"))
    group.move(
        STARTING,
        f"Attempt {group.attempt} is starting{from_what if group.row['task_type'] == TRAINING else '.'}",
        master=group.row["master"],
        resume=resume,
    )
    group.save()
    return done(group_id=group.id, attempt=group.attempt)


def _from_what(group: Row, resume: Row | None) -> str:
    if resume is None:
        return " from zero: no checkpoint was found."
    if resume.get("source") != PARENT_CHECKPOINT or "parent" not in group:
        return f" from checkpoint {resume['path']}."
    step = "" if resume.get("step") is None else f", step {resume['step']},"
    return f" from checkpoint {resume['path']}{step} of its parent {group['parent']['group_id']}: it has none itself."


def continue_phase(store: StateStore, idx: int, command: Row) -> Outcome:
    """A new leader found the phase unfinished. The count is in the log, so a mesh that changes leaders for ever still
    gives up."""
    group, refusal = _attempt(store, command, (command["status"],))
    if group is None:
        return refusal
    if group.row["phase_deadline_tries"] >= PHASE_TRIES:
        return refused(
            "phase_tries_spent",
            f"{PHASE_TRIES} leaders have inherited the {group.status} phase of {group.id}; it is to be rolled back.",
        )
    tries = group.row["phase_deadline_tries"] = group.row["phase_deadline_tries"] + 1
    group.event(
        "phase_continued",
        f"A new leader continues the {group.status} phase of attempt {group.attempt} ({tries} of {PHASE_TRIES}).",
    )
    group.save()
    return done(tries=tries)


def rollback_group(store: StateStore, idx: int, command: Row) -> Outcome:
    group, refusal = _attempt(store, command, (SCHEDULING, STARTING))
    if group is None:
        return refusal
    if group.row["ending"] is not None:
        return refused(
            "already_ending", f"attempt {group.attempt} of {group.id} is ending already ({group.row['ending']})."
        )
    penalise(store, command["node"], command["at_ms"])
    if command["code"] in TRIED_AGAIN and out_of_tries(group):
        fail(group, storage_failure(group, command["code"], command["text"]))
    else:
        roll_back(group, command["code"], command["text"], command["node"])
    finish(group)
    group.save()
    return done(group_id=group.id, status=group.status)


def _attempt(store: StateStore, command: Row, statuses: tuple[str, ...]) -> tuple[Group | None, Outcome]:
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None:
        return None, refused("no_such_group", f"group {command['group_id']} does not exist.")
    if group.status not in statuses:
        return None, refused(
            "wrong_status", f"group {group.id} is {group.status}, not {' or '.join(statuses)}.", status=group.status
        )
    if command["attempt"] != group.attempt:
        return None, refused(
            "wrong_attempt", f"group {group.id} is in attempt {group.attempt}, not {command['attempt']}."
        )
    return group, done()
