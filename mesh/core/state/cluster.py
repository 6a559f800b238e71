"""InitCluster and Noop."""

from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import Row, StateStore


def init_cluster(store: StateStore, idx: int, command: Row) -> Outcome:
    present = store.get("meta", "cluster")
    if present is not None:
        return refused(
            "cluster_exists",
            f"this log already belongs to cluster {present['cluster_id']}; a mesh is initialised once.",
        )
    row = {
        "cluster_id": command["cluster_id"],
        "epoch": command["epoch"],
        "cluster_version": 1,
        "profile": command["profile"],
        "created_ms": command["at_ms"],
        "voters": [dict(voter) for voter in command["voters"]],
    }
    store.put("meta", "cluster", row)
    return done(cluster_id=row["cluster_id"], epoch=row["epoch"])


def noop(store: StateStore, idx: int, command: Row) -> Outcome:
    return done()
