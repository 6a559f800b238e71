"""RecordExec: who ran what beside a rank. Nothing is started before it is written here, and only where a rank runs."""

from mesh.core.state.group import Group
from mesh.core.state.keys import task_key
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import Row, StateStore
from schemas.states import RUNNING

# A group's timeline is for people; who opens thousands of sessions does with a program what a task should do itself.
SESSIONS_MAX = 5_000


def record_exec(store: StateStore, idx: int, command: Row) -> Outcome:
    group_id, attempt, rank = command["group_id"], command["attempt"], command["rank"]
    group = Group.load(store, group_id, command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {group_id} does not exist.")
    task = store.get("task", task_key(group_id, attempt, rank))
    if task is None:
        return refused("rank_not_running", f"rank {rank} of {group_id} does not exist in attempt {attempt}.")
    opens = command["phase"] == "opened"
    if opens and (attempt != group.attempt or task["status"] != RUNNING):
        return refused("rank_not_running", f"rank {rank} of {group_id} is {task['status']} in attempt {attempt}.")
    if opens and group.row["events"] >= SESSIONS_MAX * 2:
        return refused("too_many_events", f"the timeline of {group_id} is full: {group.row['events']} events.")
    said = "opened a session" if opens else "left a session"
    group.event(
        "exec_opened" if opens else "exec_ended",
        f"{command['by']} {said} on rank {rank}: {command['text']}",
        rank=rank,
        node=task["node"],
        attempt=attempt,
        by=command["by"],
    )
    group.save()
    return done()
