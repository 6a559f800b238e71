"""InitCluster, RaiseVersion and Noop."""

from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import Row, StateStore
from schemas.versions import FIRST


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
        "cluster_version": FIRST,
        "profile": command["profile"],
        "created_ms": command["at_ms"],
        "voters": [dict(voter) for voter in command["voters"]],
    }
    store.put("meta", "cluster", row)
    return done(cluster_id=row["cluster_id"], epoch=row["epoch"])


def version_of(store: StateStore) -> int:
    cluster = store.get("meta", "cluster")
    return int(cluster["cluster_version"]) if cluster is not None else FIRST


def raise_version(store: StateStore, idx: int, command: Row) -> Outcome:
    """From here on commands of that version are taken; there is no way back."""
    cluster = store.get("meta", "cluster")
    if cluster is None:
        return refused("no_cluster", "this log belongs to no mesh yet.")
    to, now = command["to"], cluster["cluster_version"]
    if to <= now:
        return Outcome(True, "already_raised", f"the mesh is at cluster version {now}.", {"cluster_version": now})
    rows = [(voter["node"], store.get("node", voter["node"])) for voter in cluster["voters"]]
    behind = [
        f"{node} (up to {row.get('supports', FIRST)})" if row is not None else f"{node} (unknown)"
        for node, row in rows
        if row is None or row.get("supports", FIRST) < to
    ]
    if behind:
        return refused(
            "version_unsupported",
            f"cluster version {to} is not supported by the release on {', '.join(behind)}; upgrade that first.",
        )
    store.put("meta", "cluster", {**cluster, "cluster_version": to})
    return done(cluster_version=to)


def noop(store: StateStore, idx: int, command: Row) -> Outcome:
    return done()
