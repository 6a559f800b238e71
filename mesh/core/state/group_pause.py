"""PauseGroup, ResumeGroup: a running group saves, gives its cards back, and keeps its place in line."""

from mesh.core.state.group import Group
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.settle import finish
from mesh.core.state.store import Row, StateStore
from schemas.limits import ATTEMPTS_MAX
from schemas.states import ENDING_PAUSED, PAUSED, PAUSING, PENDING, RUNNING, TERMINAL


def pause_group(store: StateStore, idx: int, command: Row) -> Outcome:
    """Of a running group only: before that nothing has run that could be saved, and one that ends for another reason
    is not kept from it. Exit codes of ranks that were told to save say nothing."""
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {command['group_id']} does not exist.")
    if group.status in (PAUSING, PAUSED):
        return Outcome(True, "already_asked", f"group {group.id} is {group.status} already.", {"status": group.status})
    if group.status in TERMINAL:
        return refused(
            "group_ended", f"group {group.id} is {group.status}; there is nothing to pause.", status=group.status
        )
    if group.status != RUNNING:
        return refused(
            "not_running",
            f"group {group.id} is {group.status}; only a running group has something to save. "
            "Stop it, or pause it once it runs.",
            status=group.status,
        )
    if group.row["ending"] is not None:
        return refused("already_ending", f"a rank of group {group.id} failed and the others are ending.")
    group.row["ending"] = ENDING_PAUSED
    group.move(PAUSING, f"Pause asked by {command['by']}; the ranks are told to save and end.")
    group.order_stop()
    finish(group)
    group.save()
    return done(group_id=group.id, status=group.status)


def resume_group(store: StateStore, idx: int, command: Row) -> Outcome:
    """Back into the line where it stood: by its priority and the index of its submission. From which checkpoint it
    goes on is decided at the next claim, as at every start."""
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {command['group_id']} does not exist.")
    if group.status == PAUSING:
        return refused(
            "still_pausing", f"ranks of group {group.id} are still saving; resume it when it is paused.", status=PAUSING
        )
    if group.status in TERMINAL:
        return refused(
            "group_ended", f"group {group.id} is {group.status}; resubmit or clone it instead.", status=group.status
        )
    if group.status != PAUSED:
        return refused("not_paused", f"group {group.id} is {group.status}, not paused.", status=group.status)
    if group.attempt >= ATTEMPTS_MAX:
        return refused("attempts_spent", f"group {group.id} was tried {group.attempt} times; stop it and clone it.")
    group.move(PENDING, f"Resumed by {command['by']}: waiting again at its old place.")
    group.save()
    return done(group_id=group.id, status=group.status)
