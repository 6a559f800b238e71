"""A node in and out of service: CordonNode, UncordonNode, DrainNode, MoveGroup, EndDrain.

A cordoned node gets nothing new and keeps what it has. A drained one is cordoned and emptied. Both stand in the node's
row, so that every leader goes on where the one before stopped; only the leader knows when a deadline is over, and its
commands say so."""

from mesh.core.state.group import Group
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.settle import finish, roll_back
from mesh.core.state.store import Row, StateStore
from schemas.instants import iso_utc
from schemas.states import DRAIN_MOVE, ENDING_DRAINED, HELD, RECOVERING, RUNNING, SCHEDULING, STARTING


def cordon_node(store: StateStore, idx: int, command: Row) -> Outcome:
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    if node.get("cordon") is not None and not node["cordon"]["window"]:
        by = node["cordon"]["by"]
        return Outcome(True, "already_cordoned", f"node {node['node_id']} was cordoned by {by} already.", _facts(node))
    node["cordon"] = _cordon(command, window=False)
    store.put("node", node["node_id"], node)
    return done(**_facts(node))


def uncordon_node(store: StateStore, idx: int, command: Row) -> Outcome:
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    if node.get("cordon") is None:
        return Outcome(True, "not_cordoned", f"node {node['node_id']} is not cordoned.", _facts(node))
    open_again(store, node, f"by {command['by']}", command["at_ms"])
    return done(**_facts(node))


def drain_node(store: StateStore, idx: int, command: Row) -> Outcome:
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    begin_drain(store, node, command, window=False)
    return done(**_facts(node), groups=node["drain"]["groups"], deadline_ms=node["drain"]["deadline_ms"])


def begin_drain(store: StateStore, node: Row, asked: Row, window: bool) -> None:
    """asked: mode, deadline_s, by, reason, at_ms. window: a maintenance window opens, and takes the cordon away when it
    is over."""
    at_ms, node_id = asked["at_ms"], node["node_id"]
    groups = groups_on(store, node_id)
    before = node.get("cordon")
    node["cordon"] = before if before is not None and not before["window"] else _cordon(asked, window)
    deadline_ms = at_ms if asked["mode"] == DRAIN_MOVE else at_ms + asked["deadline_s"] * 1000
    node["drain"] = {
        "mode": asked["mode"],
        "deadline_ms": deadline_ms,
        "by": asked["by"],
        "reason": asked["reason"],
        "at_ms": at_ms,
        "groups": len(groups),
        "moved": 0,
        "done_ms": None,
    }
    store.put("node", node_id, node)
    until = "it is moved now" if deadline_ms <= at_ms else f"it may run there until {iso_utc(deadline_ms)}"
    why = f" ({asked['reason']})" if asked["reason"] else ""
    for group_id in groups:
        _tell(
            store,
            group_id,
            at_ms,
            "node_draining",
            f"Node {node_id} is drained by {asked['by']}{why}; {until}.",
            node_id,
            deadline_ms=deadline_ms,
        )


def open_again(store: StateStore, node: Row, how: str, at_ms: int) -> None:
    """Without cordon, drain and window under way; a window that lies ahead stays."""
    drain = node.get("drain")
    node["cordon"] = node["drain"] = None
    window = node.get("window")
    if window is not None and window["open"]:
        node["window"] = None
    store.put("node", node["node_id"], node)
    if drain is not None and drain["done_ms"] is None:
        for group_id in groups_on(store, node["node_id"]):
            _tell(
                store,
                group_id,
                at_ms,
                "node_undrained",
                f"The drain of node {node['node_id']} was called off {how}.",
                node["node_id"],
            )


def move_group(store: StateStore, idx: int, command: Row) -> Outcome:
    """Off a node that is drained: its ranks get their grace to save, and it waits at its old place. Nothing failed, so
    neither a restart nor a penalty is counted."""
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    drain = node.get("drain")
    if drain is None:
        return refused("not_draining", f"node {node['node_id']} is not drained.")
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {command['group_id']} does not exist.")
    if command["attempt"] != group.attempt or node["node_id"] not in group.row["nodes"]:
        return refused("wrong_attempt", f"attempt {command['attempt']} of {group.id} is not on {node['node_id']}.")
    if group.status not in (SCHEDULING, STARTING, RUNNING) or group.row["ending"] is not None:
        return refused("already_ending", f"group {group.id} is {group.status} and leaves {node['node_id']} by itself.")
    drain["moved"] += 1
    store.put("node", node["node_id"], node)
    why = f"node {node['node_id']} is drained by {drain['by']}" + (f" ({drain['reason']})." if drain["reason"] else ".")
    if group.status == SCHEDULING:
        roll_back(group, "drained", why, node["node_id"])
    else:
        group.row["drains"] = group.row.get("drains", 0) + 1
        group.row["ending"] = ENDING_DRAINED
        group.move(
            RECOVERING,
            f"Moving: {why} Its ranks are told to save and end, then it goes on elsewhere.",
            node=node["node_id"],
        )
        group.order_stop()
        finish(group)
    group.save()
    return done(group_id=group.id, status=group.status)


def end_drain(store: StateStore, idx: int, command: Row) -> Outcome:
    node, refusal = known_node(store, command["node_id"])
    if node is None:
        return refusal
    drain = node.get("drain")
    if drain is None or drain["done_ms"] is not None:
        return refused("not_draining", f"node {node['node_id']} is not being drained.")
    left = next(iter(store.scan("hold", f"{node['node_id']}/", limit=1)), None)
    if left is not None:
        return refused("not_empty", f"node {node['node_id']} still has cards or ports of a group.")
    drain["done_ms"] = command["at_ms"]
    store.put("node", node["node_id"], node)
    return done(node_id=node["node_id"])


def known_node(store: StateStore, node_id: str) -> tuple[Row | None, Outcome]:
    node = store.get("node", node_id)
    if node is None:
        return None, refused("no_such_node", f"node {node_id} has never registered.")
    return node, done()


def groups_on(store: StateStore, node_id: str) -> list[str]:
    """Groups whose ranks there are neither ending nor over."""
    held = (key.split("/") for key, hold in store.scan("hold", f"{node_id}/") if hold["state"] == HELD)
    return list(dict.fromkeys(group_id for _, group_id, _, _ in held))


def _cordon(asked: Row, window: bool) -> Row:
    return {"by": asked["by"], "reason": asked["reason"], "at_ms": asked["at_ms"], "window": window}


def _facts(node: Row) -> Row:
    return {"node_id": node["node_id"], "cordoned": node.get("cordon") is not None}


def _tell(store: StateStore, group_id: str, at_ms: int, kind: str, text: str, node_id: str, **data: int) -> None:
    group = Group.load(store, group_id, at_ms)
    assert group is not None
    group.event(kind, text, node=node_id, **data)
    group.save()
