"""The audit: one entry for each change that somebody asked for, done or refused.

Entries are numbered without gaps, so a reader pages by arithmetic; `audit_span` knows the first and the next number.
Each new one drops up to PRUNE that are too old or too many."""

from mesh.core.state.keys import audit_key
from mesh.core.state.outcome import Outcome
from mesh.core.state.store import Row, StateStore
from schemas.limits import AUDIT_MAX, AUDIT_TTL_MS

PRUNE = 4
SPAN = "span"
_TARGETS = ("group_id", "key_id", "node_id")
_DETAILS = ("tenant", "role", "name", "resubmit_of", "mode", "reason", "path")


def record(store: StateStore, command: Row, outcome: Outcome) -> None:
    """Nothing for what agents do among themselves: the timeline of the group says that."""
    caller = command.get("caller")
    if caller is None:
        return
    span = store.get("audit_span", SPAN) or {"first": 1, "next": 1}
    number = span["next"]
    store.put(
        "audit",
        audit_key(number),
        {
            "at_ms": command["at_ms"],
            "who": caller["name"],
            "kind": caller["kind"],
            "key": caller.get("key"),
            "node": caller["node"],
            "what": command["t"],
            "target": next((command[name] for name in _TARGETS if command.get(name) is not None), None),
            "details": {name: command[name] for name in _DETAILS if isinstance(command.get(name), str)},
            "ok": outcome.ok,
            "code": outcome.code,
        },
    )
    first = _pruned(store, span["first"], number, command["at_ms"])
    store.put("audit_span", SPAN, {"first": first, "next": number + 1})


def _pruned(store: StateStore, first: int, last: int, now_ms: int) -> int:
    for _ in range(PRUNE):
        oldest = store.get("audit", audit_key(first))
        if first >= last or (oldest is not None and not _too_much(oldest, first, last, now_ms)):
            break
        store.delete("audit", audit_key(first))
        first += 1
    return first


def _too_much(oldest: Row, first: int, last: int, now_ms: int) -> bool:
    return last - first >= AUDIT_MAX or now_ms - int(oldest["at_ms"]) > AUDIT_TTL_MS
