"""PauseScheduling, ResumeScheduling: the switch for incidents. Nothing new is bound; what runs goes on."""

from mesh.core.state.outcome import Outcome, done
from mesh.core.state.store import Row, StateStore

KEY = "pause"


def pause_scheduling(store: StateStore, idx: int, command: Row) -> Outcome:
    paused = store.get("meta", KEY)
    if paused is not None:
        return Outcome(True, "already_paused", f"scheduling was paused by {paused['by']} already.", {"paused": True})
    store.put("meta", KEY, {"by": command["by"], "reason": command["reason"], "at_ms": command["at_ms"]})
    return done(paused=True)


def resume_scheduling(store: StateStore, idx: int, command: Row) -> Outcome:
    if store.get("meta", KEY) is None:
        return Outcome(True, "not_paused", "scheduling is not paused.", {"paused": False})
    store.delete("meta", KEY)
    return done(paused=False)


def is_paused(store: StateStore) -> bool:
    return store.get("meta", KEY) is not None
