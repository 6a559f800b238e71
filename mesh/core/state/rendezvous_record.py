"""RecordRendezvous: what was seen of how the ranks of an attempt meet. It changes what people read, and no state."""

from mesh.core.state.group import Group
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import Row, StateStore
from schemas.states import RUNNING

# A world that comes and goes in the eye of the observer shall not fill a timeline.
_CHANGES_MAX = 20


def record_rendezvous(store: StateStore, idx: int, command: Row) -> Outcome:
    group_id, attempt, state = command["group_id"], command["attempt"], command["state"]
    group = Group.load(store, group_id, command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {group_id} does not exist.")
    if attempt != group.attempt or group.status != RUNNING:
        return refused(
            "not_running", f"attempt {attempt} of {group_id} does not run; it is {group.status} in {group.attempt}."
        )
    known = group.row.get("rendezvous")
    if known is not None and known["attempt"] == attempt:
        if (known["state"], known["text"]) == (state, command["text"]):
            return done()
        if known["changes"] >= _CHANGES_MAX:
            return refused("too_many_changes", f"what is seen of {group_id} has changed {_CHANGES_MAX} times.")
    changes = known["changes"] + 1 if known is not None and known["attempt"] == attempt else 1
    group.row["rendezvous"] = {
        "attempt": attempt,
        "state": state,
        "text": command["text"],
        "at_ms": command["at_ms"],
        "changes": changes,
    }
    group.event(f"rendezvous_{state}", command["text"][:1].upper() + command["text"][1:] + ".")
    group.save()
    return done()
