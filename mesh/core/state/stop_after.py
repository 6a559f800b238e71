"""StopAfterCheckpoint: a stop that waits for the next checkpoint, so that nothing computed is lost.

The group goes on running and says what it waits for. The report of a checkpoint ends it here; that its time is over, or
that it does not run any more, is told by the leader with a plain StopGroup."""

from mesh.core.state.group import Group
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.settle import stop
from mesh.core.state.store import Row, StateStore
from mesh.core.state.submit import stop_group
from schemas.states import RUNNING


def stop_after_checkpoint(store: StateStore, idx: int, command: Row) -> Outcome:
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None or group.status != RUNNING or group.row["ending"] is not None:
        # Nothing of it is computing, so there is nothing to wait for.
        return stop_group(store, idx, command)
    if group.row["checkpoint_path"] is None:
        return refused(
            "no_checkpoint_path", f"group {group.id} has no checkpoint_path, so no checkpoint of it is seen; stop it."
        )
    deadline_ms = command["at_ms"] + command["within_s"] * 1000
    group.row["stop_after"] = {"by": command["by"], "at_ms": command["at_ms"], "deadline_ms": deadline_ms}
    group.event(
        "stop_asked",
        f"{command['by']} asked to stop it after its next checkpoint, or in {command['within_s']} s without one.",
        deadline_ms=deadline_ms,
    )
    group.save()
    return done(group_id=group.id, status=group.status, deadline_ms=deadline_ms)


def stop_at_checkpoint(group: Group, pick: str) -> None:
    """A checkpoint of this attempt was told. Those written just before the request count: what came after them and is
    lost is what a look takes."""
    asked = group.row.get("stop_after")
    if asked is not None and group.status == RUNNING and group.row["ending"] is None:
        stop(group, f"{asked['by']}, after checkpoint {pick}")
