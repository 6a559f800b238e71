"""RecordDownload, RecordUpload: who had which file of a group, for the audit, before any byte of it moves."""

from mesh.core.state.keys import task_key
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import Row, StateStore


def record_file_access(store: StateStore, idx: int, command: Row) -> Outcome:
    """Changes nothing: the entry is made of the command, as for every command with a caller."""
    group_id, attempt, rank = command["group_id"], command["attempt"], command["rank"]
    if store.get("group", group_id) is None:
        return refused("no_such_group", f"group {group_id} does not exist.")
    if store.get("task", task_key(group_id, attempt, rank)) is None:
        return refused("no_such_task", f"rank {rank} of {group_id} does not exist in attempt {attempt}.")
    return done()
