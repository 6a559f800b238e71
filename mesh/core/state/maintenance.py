"""PlanMaintenance, TurnMaintenance, CancelMaintenance: a window in which a node is out of service, opened and ended by
the leader's stamp."""

from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.service import begin_drain, known_node, open_again
from mesh.core.state.store import Row, StateStore


def plan_maintenance(store: StateStore, idx: int, command: Row) -> Outcome:
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    at_ms, window = command["at_ms"], node.get("window")
    if window is not None and window["open"]:
        return refused(
            "maintenance_open",
            f"node {node['node_id']} is in a maintenance window of {window['by']} already; uncordon it first.",
        )
    from_ms = command["from_ms"] if command["from_ms"] is not None else at_ms + command["in_s"] * 1000
    until_ms = from_ms + command["for_s"] * 1000
    if until_ms <= at_ms:
        return refused("maintenance_past", "the maintenance window would be over before it is planned.")
    node["window"] = {
        "from_ms": from_ms,
        "until_ms": until_ms,
        "mode": command["mode"],
        "deadline_s": command["deadline_s"],
        "by": command["by"],
        "reason": command["reason"],
        "at_ms": at_ms,
        "open": False,
    }
    store.put("node", node["node_id"], node)
    return done(node_id=node["node_id"], from_ms=from_ms, until_ms=until_ms)


def turn_maintenance(store: StateStore, idx: int, command: Row) -> Outcome:
    """The leader says that the window's time has come, or is over: also of one that nobody was there to open."""
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    opens = command["to"] == "open"
    window = node.get("window")
    if window is None or (opens and window["open"]):
        return refused(
            "wrong_window", f"node {node['node_id']} has no maintenance window that could be {command['to']}."
        )
    if opens:
        window["open"] = True
        asked = {name: window[name] for name in ("mode", "deadline_s", "by", "reason")}
        begin_drain(store, node, {**asked, "at_ms": command["at_ms"]}, window=True)
    elif window["open"]:
        _close(store, node, "as its maintenance window is over", command["at_ms"])
    else:
        node["window"] = None
        store.put("node", node["node_id"], node)
    return done(node_id=node["node_id"], window=command["to"])


def cancel_maintenance(store: StateStore, idx: int, command: Row) -> Outcome:
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    window = node.get("window")
    if window is None:
        return Outcome(
            True, "no_window", f"node {node['node_id']} has no maintenance window.", {"node_id": node["node_id"]}
        )
    if window["open"]:
        _close(store, node, f"by {command['by']}", command["at_ms"])
    else:
        node["window"] = None
        store.put("node", node["node_id"], node)
    return done(node_id=node["node_id"])


def _close(store: StateStore, node: Row, how: str, at_ms: int) -> None:
    """A cordon that somebody had set before stays theirs to take away."""
    if node["cordon"]["window"]:
        open_again(store, node, how, at_ms)
    else:
        node["window"] = None
        store.put("node", node["node_id"], node)
