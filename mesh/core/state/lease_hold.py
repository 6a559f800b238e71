"""HoldMesh, ReleaseHold, HoldLeft: planned work, during which no node is given up (mesh/core/lease/mesh_hold.py)."""

from math import ceil

from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import Row, StateStore
from schemas.limits import HOLD_STRETCH

KEY = "lease_hold"


def hold_mesh(store: StateStore, idx: int, command: Row) -> Outcome:
    """A second one never shortens the first: longer leases were granted already."""
    before = open_hold(store)
    for_ms = command["for_s"] * 1000
    left_ms = ceil(for_ms * HOLD_STRETCH)
    row = {
        "hold": idx,
        "for_ms": max(for_ms, before["for_ms"]) if before is not None else for_ms,
        "left_ms": max(left_ms, before["left_ms"]) if before is not None else left_ms,
        "granting": True,
        "by": command["by"],
        "reason": command["reason"],
        "at_ms": command["at_ms"],
        "since_ms": before["since_ms"] if before is not None else command["at_ms"],
        "over_ms": None,
    }
    store.put("meta", KEY, row)
    return done(until_ms=command["at_ms"] + for_ms)


def release_hold(store: StateStore, idx: int, command: Row) -> Outcome:
    """Leases that were granted longer stay so: nodes are given up again when the last of them has run out."""
    row = open_hold(store)
    if row is None:
        return Outcome(True, "no_hold", "the mesh is not held.", {"left_ms": 0})
    if row["granting"]:
        row["granting"] = False
        store.put("meta", KEY, row)
    return done(left_ms=row["left_ms"])


def hold_left(store: StateStore, idx: int, command: Row) -> Outcome:
    row = open_hold(store)
    if row is None or row["hold"] != command["hold"]:
        return refused("other_hold", "that hold is over, or was made longer.")
    if command["left_ms"] < row["left_ms"]:
        row["left_ms"] = command["left_ms"]
        if row["left_ms"] == 0:
            row.update(granting=False, over_ms=command["at_ms"])
        store.put("meta", KEY, row)
    return done(left_ms=row["left_ms"])


def open_hold(store: StateStore) -> Row | None:
    row = store.get("meta", KEY)
    return row if row is not None and row["over_ms"] is None else None
