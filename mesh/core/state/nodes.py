"""RegisterNode, ExpireNode, GiveUpNode, RejoinNode."""

from typing import Any

from mesh.core.state.cluster import version_of
from mesh.core.state.group import Group, release
from mesh.core.state.keys import hold_task_key
from mesh.core.state.lease_hold import open_hold
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.penalty import NO_PENALTY
from mesh.core.state.settle import failure_follows_loss, recover, settle
from mesh.core.state.store import Row, StateStore
from schemas.states import GONE, ISOLATION_KEEP, NODE_LOST, NODE_READY
from schemas.versions import FIRST

_FACTS = ("uid", "api_addr", "voter_addr", "gpu_backend", "runtime", "version", "cpus", "memory_mb")


# What operators ordered stands for the name: a host is often cordoned to be replaced.
_OPERATED = ("cordon", "drain", "window")


def register_node(store: StateStore, idx: int, command: Row) -> Outcome:
    node_id = command["node_id"]
    supports, now = command.get("supports", FIRST), version_of(store)
    if supports < now:
        # Its agent would read rows and orders of a meaning that it does not know.
        return refused(
            "release_too_old",
            f"the release on {node_id} knows cluster versions up to {supports}, and this mesh is at {now}; upgrade it.",
        )
    cards = [gpu["uuid"] for gpu in command["gpus"]]
    if len(set(cards)) != len(cards):
        return refused("duplicate_gpu", f"node {node_id} lists one card twice; its driver or --gpus is wrong.")
    row = store.get("node", node_id)
    kept: dict[str, Any] = {}
    if row is not None and row["uid"] != command["uid"]:
        refusal = _takeover_refusal(store, row)
        if refusal is not None:
            return refusal
        _drop_dead_holds(store, node_id)
        kept = {name: row[name] for name in _OPERATED if row.get(name) is not None}
        row = None
    if row is None:
        row = {
            "node_id": node_id,
            "state": NODE_READY,
            "joined_ms": command["at_ms"],
            "lost_ms": None,
            "reason": None,
            "penalty": dict(NO_PENALTY),
            "losses": 0,
            **kept,
        }
    before = dict(row)
    row.update({name: command[name] for name in _FACTS})
    row["gpus"] = [dict(gpu) for gpu in command["gpus"]]
    row["labels"] = dict(command["labels"])
    row["engine_down"] = command.get("engine_down")
    row.pop("addresses", None)
    if command.get("addresses"):
        row["addresses"] = list(command["addresses"])
    row["supports"] = supports
    if row != before:
        store.put("node", node_id, row)
    return done(node_id=node_id, state=row["state"])


def _takeover_refusal(store: StateStore, row: Row) -> Outcome | None:
    node_id = row["node_id"]
    if row["state"] != NODE_LOST:
        return refused(
            "node_name_taken",
            f"node name {node_id} belongs to another host, at {row['api_addr']}, which is {row['state']}; "
            "choose another --name, or stop that host first and wait until it is lost.",
        )
    if any(task["status"] not in GONE for tasks in _tasks_on(store, node_id).values() for task in tasks):
        return refused(
            "node_name_taken",
            f"node name {node_id} belongs to a lost host whose ranks were told to keep running; "
            "stop their groups or choose another --name.",
        )
    return None


def _drop_dead_holds(store: StateStore, node_id: str) -> None:
    """A new host under an old name: what the old one still had to clean up went with it."""
    for key, _ in store.scan("hold", f"{node_id}/"):
        task = store.get("task", hold_task_key(key))
        assert task is not None
        release(store, task)
        store.put("task", hold_task_key(key), task)


def expire_node(store: StateStore, idx: int, command: Row) -> Outcome:
    node_id = command["node_id"]
    row, refusal = _node_of(store, node_id, command["uid"])
    if row is None:
        return refusal
    if row["state"] == NODE_LOST:
        return Outcome(True, "already_lost", f"node {node_id} is lost already.")
    if open_hold(store) is not None:
        return refused("mesh_held", f"node {node_id} is not given up while the mesh is held for planned work.")
    row.update(state=NODE_LOST, lost_ms=command["at_ms"], reason=command["text"], losses=row["losses"] + 1)
    store.put("node", node_id, row)
    why = f"node {node_id} was lost ({command['text']})." if command["text"] else f"node {node_id} was lost."
    touched = {
        group_id: _lose_host(store, group_id, tasks, why, command["at_ms"])
        for group_id, tasks in _tasks_on(store, node_id).items()
    }
    return done(groups=[group_id for group_id, lost in touched.items() if lost])


def give_up_node(store: StateStore, idx: int, command: Row) -> Outcome:
    """A person knows that a lost host is off for good. Nothing else proves that of a rank which was told to keep
    running, and without a proof its group would wait, or stop, for ever."""
    node_id = command["node_id"]
    row = store.get("node", node_id)
    if row is None:
        return refused("no_such_node", f"node {node_id} has never registered.")
    if row["state"] != NODE_LOST:
        return refused(
            "node_not_lost", f"node {node_id} is {row['state']}: it is heard, so nobody has to say that it is gone."
        )
    said = f" ({command['reason']})" if command["reason"] else ""
    why = f"{command['by']} said that node {node_id} is gone for good{said}."
    touched = {
        group_id: _lose_host(store, group_id, tasks, why, command["at_ms"], kept=False)
        for group_id, tasks in _tasks_on(store, node_id).items()
    }
    return done(node_id=node_id, groups=sum(touched.values()))


def _lose_host(store: StateStore, group_id: str, tasks: list[Row], why: str, at_ms: int, kept: bool = True) -> bool:
    """kept: ranks that were told to keep running without the mesh may still do so."""
    group = Group.load(store, group_id, at_ms)
    assert group is not None
    alive = [task for task in tasks if task["status"] not in GONE]
    if not alive:
        return False
    node = alive[0]["node"]
    if kept and group.row["on_isolation"] == ISOLATION_KEEP:
        group.event(
            "node_isolated",
            f"{_sentence(why)} Its rank keeps running there, as on_isolation: keep asks, and the group waits for it. "
            f"If that host is off for good: heteroflow give-up {node}",
            node=node,
        )
        group.save()
        return False
    group.event("node_lost", _sentence(why), node=node)
    for task in alive:
        group.lose_task(task, why)
        group.put_task(task)
    if group.row["ending"] is None or failure_follows_loss(group):
        recover(group, why, node)
    settle(group)
    group.save()
    return True


def rejoin_node(store: StateStore, idx: int, command: Row) -> Outcome:
    """A lost host is back, its agent has killed what the mesh gave up, and says what is still there."""
    node_id = command["node_id"]
    row, refusal = _node_of(store, node_id, command["uid"])
    if row is None:
        return refusal
    if row["state"] == NODE_READY:
        return Outcome(True, "already_ready", f"node {node_id} is ready already.")
    if command["losses"] != row["losses"]:
        # A copy that was on its way since an earlier loss: its inventory knows nothing of what runs there now.
        return refused(
            "stale_rejoin",
            f"node {node_id} was lost {row['losses']} times, this request is about loss {command['losses']}; "
            "its agent must look again.",
        )
    present = {(task["group_id"], task["attempt"], task["rank"]): task["token"] for task in command["tasks"]}
    on_node = _tasks_on(store, node_id)
    alive = {
        (task["group_id"], task["attempt"], task["rank"]): task["token"]
        for tasks in on_node.values()
        for task in tasks
        if task["status"] not in GONE
    }
    stale = [list(ref) for ref, token in present.items() if alive.get(ref) != token]
    if stale:
        return refused(
            "stale_tasks",
            f"node {node_id} still has {len(stale)} ranks of attempts the mesh gave up; "
            "it must end them before it may return.",
            tasks=stale,
        )
    row.update(state=NODE_READY, lost_ms=None, reason=None)
    store.put("node", node_id, row)
    for group_id, tasks in on_node.items():
        _return_host(store, group_id, tasks, set(present), node_id, command["at_ms"])
    return done(node_id=node_id, state=NODE_READY)


def _return_host(
    store: StateStore, group_id: str, tasks: list[Row], present: set[Any], node_id: str, at_ms: int
) -> None:
    group = Group.load(store, group_id, at_ms)
    assert group is not None
    kept = False
    vanished = False
    for task in tasks:
        if (task["group_id"], task["attempt"], task["rank"]) in present:
            kept = True
            continue
        vanished |= group.lose_task(task, f"node {node_id} came back without it.")
        release(store, task)
        group.put_task(task)
    what = "with its rank still running" if kept else "without ranks of this group; its cards are free again"
    group.event("node_returned", f"Node {node_id} is back {what}.", node=node_id)
    if vanished and group.row["ending"] is None:
        recover(group, f"node {node_id} came back without its rank.", node_id)
    settle(group)
    group.save()


def _tasks_on(store: StateStore, node_id: str) -> dict[str, list[Row]]:
    """The unreleased tasks of a node, by group, in key order."""
    found: dict[str, list[Row]] = {}
    for key, _ in store.scan("hold", f"{node_id}/"):
        task = store.get("task", hold_task_key(key))
        assert task is not None, f"hold {key} has no task"
        found.setdefault(task["group_id"], []).append(task)
    return found


def _node_of(store: StateStore, node_id: str, uid: str) -> tuple[Row | None, Outcome]:
    row = store.get("node", node_id)
    if row is None:
        return None, refused("no_such_node", f"node {node_id} has never registered.")
    if row["uid"] != uid:
        return None, refused(
            "wrong_node_uid", f"node name {node_id} belongs to another host now; this one must join under another name."
        )
    return row, done()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
