"""SubmitGroup, StopGroup, DeleteGroup."""

from mesh.core.state.authority import person_behind
from mesh.core.state.group import Group, release
from mesh.core.state.keys import ended_key, hold_key
from mesh.core.state.nested_paths import nested_warning
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.real_paths import PATH_IN_USE
from mesh.core.state.saves import forget_saves
from mesh.core.state.settle import settle, stop
from mesh.core.state.shape import shape_of
from mesh.core.state.store import Row, StateStore
from schemas.states import COMPLETED, FAILED, NODE_LOST, PENDING, STOPPED, STOPPING, TERMINAL


def submit_group(store: StateStore, idx: int, command: Row) -> Outcome:
    group_id = command["group_id"]
    shape = shape_of(command["document"])
    if isinstance(shape, str):
        return refused("invalid_document", f"{shape}; the group was not created.")
    if store.get("group", group_id) is not None:
        return refused("group_exists", f"group {group_id} exists already; submit again with a new id.")
    path = shape.checkpoint_path
    warnings = list(command["warnings"])
    if path is not None:
        user = store.get("ckpt", path)
        if user is not None:
            return _path_in_use(store, command, path, user["group_id"])
        nested = nested_warning(store, path, person_behind(store, command))
        warnings += [nested] if nested is not None else []
        store.put("ckpt", path, {"group_id": group_id})
    group = Group(
        store,
        {
            "group_id": group_id,
            "name": shape.name,
            "task_type": shape.task_type,
            "document": command["document"],
            "tenant": command["tenant"],
            "user": command["user"],
            "priority": shape.priority,
            "status": PENDING,
            "attempt": 0,
            "submit_idx": idx,
            "created_ms": command["at_ms"],
            "started_ms": None,
            "ended_ms": None,
            "waits_since_ms": command["at_ms"],
            "on_isolation": shape.on_isolation,
            "checkpoint_path": path,
            "nodes": [],
            "master": None,
            "probe": None,
            "resume": None,
            "phase_deadline_tries": 0,
            "claimed": [],
            "tally": {},
            "events": 0,
            "pending_reason": None,
            "ending": None,
            "failure": None,
            "warnings": warnings,
            "rollbacks": 0,
            "restarts": 0,
            "request": _request_ref(command),
            "resubmit_of": command["resubmit_of"],
        },
        command["at_ms"],
    )
    told = ""
    if "parent" in command:
        group.row["parent"] = dict(command["parent"])
        told = f" It goes on from checkpoint {command['parent']['path']} of {command['parent']['group_id']}."
    store.put("active", group_id, {"status": PENDING})
    shaped = f"{shape.n_nodes} nodes x {shape.per_node_gpu} GPUs"
    group.event("submitted", f"Submitted by {command['user']}: {shaped}.{told}")
    group.save()
    return done(group_id=group_id, status=PENDING, created_ms=command["at_ms"], warnings=group.row["warnings"])


def _path_in_use(store: StateStore, command: Row, path: str, group_id: str) -> Outcome:
    person = person_behind(store, command)
    other = store.get("group", group_id)
    if person is not None and other is not None and not person.sees(other["tenant"]):
        return refused(
            PATH_IN_USE,
            f"checkpoint_path {path} is in use by a group of another tenant; choose another path.",
        )
    return refused(
        PATH_IN_USE,
        f"checkpoint_path {path} is in use by active group {group_id}; "
        "two groups would overwrite each other's checkpoints. "
        "Wait for it, stop it, or choose another path.",
        group_id=group_id,
    )


def _request_ref(command: Row) -> dict[str, str] | None:
    request = command.get("request")
    return {"client": request["client"], "id": request["id"]} if request else None


def stop_group(store: StateStore, idx: int, command: Row) -> Outcome:
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {command['group_id']} does not exist.")
    if group.status in (STOPPING, STOPPED):
        return Outcome(True, "already_asked", f"group {group.id} is {group.status} already.", {"status": group.status})
    if group.status in (COMPLETED, FAILED):
        return refused(
            "group_ended", f"group {group.id} is {group.status}; there is nothing to stop.", status=group.status
        )
    stop(group, command["by"])
    settle(group)
    group.save()
    return done(group_id=group.id, status=group.status)


def delete_group(store: StateStore, idx: int, command: Row) -> Outcome:
    group_id = command["group_id"]
    row = store.get("group", group_id)
    if row is None:
        return refused("no_such_group", f"group {group_id} does not exist.")
    if row["status"] not in TERMINAL:
        return refused(
            "group_active", f"group {group_id} is {row['status']}; stop it before it is deleted.", status=row["status"]
        )
    removed = remove_group(store, row)
    return done(group_id=group_id) if isinstance(removed, int) else removed


def remove_group(store: StateStore, row: Row) -> int | Outcome:
    """Of an ended group everything: how many rows that were. A refusal while a card of it is still being cleaned."""
    group_id = str(row["group_id"])
    tasks = list(store.scan("task", f"{group_id}/"))
    unclean = [task for _, task in tasks if not task["released"] and not _host_is_lost(store, task["node"])]
    if unclean:
        nodes = ", ".join(sorted({task["node"] for task in unclean})[:5])
        return refused(
            "still_releasing", f"cards of group {group_id} are still being cleaned on {nodes}; delete it in a moment."
        )
    for key, task in tasks:
        if store.get("hold", hold_key(task["node"], group_id, task["attempt"], task["rank"])) is not None:
            release(store, task)
        store.delete("task", key)
    events = [key for key, _ in store.scan("event", f"{group_id}/")]
    for key in events:
        store.delete("event", key)
    saves = forget_saves(store, group_id)
    store.delete("ended", ended_key(row["ended_ms"], group_id))
    store.delete("group", group_id)
    return len(tasks) + len(events) + saves + 1


def _host_is_lost(store: StateStore, node_id: str) -> bool:
    node = store.get("node", node_id)
    return node is None or node["state"] == NODE_LOST
