"""SetReasons: why groups wait. Written only where it changed, so a scheduler that keeps saying the same costs
nothing."""

from mesh.core.state.outcome import Outcome, done
from mesh.core.state.store import Row, StateStore
from schemas.states import PENDING


def set_reasons(store: StateStore, idx: int, command: Row) -> Outcome:
    changed = 0
    for group_id, reason in command["reasons"].items():
        row = store.get("group", group_id)
        wanted = {"code": reason["code"], "text": reason["text"], "details": reason.get("details", {})}
        if row is None or row["status"] != PENDING or row["pending_reason"] == wanted:
            continue
        row["pending_reason"] = wanted
        store.put("group", group_id, row)
        changed += 1
    return done(changed=changed)
