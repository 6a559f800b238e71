"""What must hold in every state, whatever was applied. `violations` says each breach in words; the simulator uses it
too."""

from collections import Counter
from typing import Any

from mesh.core.state.bind import ports_of
from mesh.core.state.keys import attempt_prefix, ended_key, hold_key, request_key, task_key
from mesh.core.state.shape import Shape, shape_of
from mesh.core.state.store import StateStore
from schemas.states import (
    ACTIVE,
    CANCELLED,
    EVENT_KINDS,
    EXITED,
    GONE,
    HELD,
    ORDER_NONE,
    ORDER_START,
    PAUSED,
    PENDING,
    RUNNING,
    SCHEDULING,
    STARTING,
    TERMINAL,
)
from schemas.task_types import ENDLESS


def violations(store: StateStore) -> list[str]:
    found: list[str] = []
    groups = dict(store.scan("group"))
    tasks = dict(store.scan("task"))
    holds = dict(store.scan("hold"))
    _cards(found, store, holds)
    _holds_are_unreleased_tasks(found, tasks, holds)
    _active_and_checkpoints(found, store, groups)
    _requests(found, store)
    held = store.get("meta", "lease_hold")
    if held is not None and (held["left_ms"] == 0) != (held["over_ms"] is not None):
        found.append(f"a hold with {held['left_ms']} ms left, over since {held['over_ms']}")
    for node_id, row in store.scan("node"):
        _service(found, node_id, row)
    for group_id, row in groups.items():
        _group(found, store, group_id, row)
    for key, task in tasks.items():
        group = groups.get(task["group_id"])
        if group is None:
            found.append(f"task {key} has no group")
        elif task["attempt"] < group["attempt"] and task["status"] not in GONE:
            found.append(f"task {key} of an old attempt is {task['status']}")
    return found


def _cards(found: list[str], store: StateStore, holds: dict[str, Any]) -> None:
    seen: dict[tuple[str, Any], str] = {}
    for key, hold in holds.items():
        node = key.split("/", 1)[0]
        things = [("card", uuid) for uuid in hold["gpus"]] + [("port", port) for port in ports_of(hold)]
        for thing in things:
            owner = seen.setdefault((node, thing), key)
            if owner != key:
                found.append(f"{thing} of {node} is held by {owner} and by {key}")
        if store.get("node", node) is None:
            found.append(f"hold {key} is on an unknown node")


def _service(found: list[str], node_id: str, row: dict[str, Any]) -> None:
    cordon, drain, window = row.get("cordon"), row.get("drain"), row.get("window")
    if drain is not None and cordon is None:
        found.append(f"{node_id} is drained and takes new groups")
    if window is not None and window["open"] and cordon is None:
        found.append(f"{node_id} is in a maintenance window and takes new groups")
    if cordon is not None and cordon["window"] and not (window is not None and window["open"]):
        found.append(f"{node_id} is cordoned by a maintenance window that is not open")


def _holds_are_unreleased_tasks(found: list[str], tasks: dict[str, Any], holds: dict[str, Any]) -> None:
    wanted = {}
    for task in tasks.values():
        if not task["released"]:
            wanted[hold_key(task["node"], task["group_id"], task["attempt"], task["rank"])] = task
        elif task["order"] != ORDER_NONE or task["status"] not in GONE:
            found.append(f"released task {task_key(task['group_id'], task['attempt'], task['rank'])} is not over")
    if set(wanted) != set(holds):
        found.append(f"holds and unreleased tasks differ: {sorted(set(wanted) ^ set(holds))}")
    for key, hold in holds.items():
        task = wanted.get(key)
        if task is not None and (task["gpus"], task["port"]) != (hold["gpus"], hold["port"]):
            found.append(f"hold {key} and its task name different cards")
        if task is not None and task["status"] in GONE and hold["state"] == HELD:
            found.append(f"hold {key} is held for a rank that is {task['status']}")


def _active_and_checkpoints(found: list[str], store: StateStore, groups: dict[str, Any]) -> None:
    active = {key: row["status"] for key, row in store.scan("active")}
    wanted = {key: row["status"] for key, row in groups.items() if row["status"] in ACTIVE}
    if active != wanted:
        found.append(f"active rows {active} are not the active groups {wanted}")
    ended = {ended_key(row["ended_ms"], key) for key, row in groups.items() if row["status"] not in ACTIVE}
    if {key for key, _ in store.scan("ended")} != ended:
        found.append("ended rows are not the groups that have ended")
    paths = {row["checkpoint_path"]: key for key, row in groups.items() if key in wanted and row["checkpoint_path"]}
    paths |= {path: key for key, row in groups.items() for path in row.get("real_paths", ())}
    if {path: row["group_id"] for path, row in store.scan("ckpt")} != paths:
        found.append("ckpt rows are not the checkpoint paths of the active groups")


def _requests(found: list[str], store: StateStore) -> None:
    counts = Counter(key.split("/", 1)[0] for key, _ in store.scan("request"))
    if dict(counts) != {key: row["requests"] for key, row in store.scan("client")}:
        found.append("client rows do not count the request rows")
    queued = {request_key(row["client"], row["id"]) for _, row in store.scan("request_queue")}
    if not {key for key, _ in store.scan("request")} <= queued:
        found.append("a request row can never expire")


def _group(found: list[str], store: StateStore, group_id: str, row: dict[str, Any]) -> None:
    tasks = [task for _, task in store.scan("task", attempt_prefix(group_id, row["attempt"]))]
    statuses = Counter(task["status"] for task in tasks)
    tally = {status: count for status, count in row["tally"].items() if count}
    status = row["status"]
    if tally != dict(statuses):
        found.append(f"{group_id}: tally {tally} but ranks are {dict(statuses)}")
    if row["attempt"]:
        shape = shape_of(row["document"])
        assert isinstance(shape, Shape)
        if [task["rank"] for task in tasks] != list(range(shape.n_nodes)):
            found.append(f"{group_id}: attempt {row['attempt']} has ranks {[task['rank'] for task in tasks]}")
        if len({task["token"] for task in tasks}) != 1:
            found.append(f"{group_id}: ranks of one attempt have different tokens")
    not_gone = [task["rank"] for task in tasks if task["status"] not in GONE]
    if not_gone and (status in TERMINAL or status in (PENDING, PAUSED)):
        found.append(f"{group_id} is {status} while ranks {not_gone} are not gone")
    if status in ACTIVE and status not in (PENDING, PAUSED) and not not_gone:
        found.append(f"{group_id} is {status} with every rank gone")
    if status in (*TERMINAL, PENDING, PAUSED) and row["ending"] is not None:
        found.append(f"{group_id} is {status} and still ending {row['ending']}")
    if status == SCHEDULING and any(task["order"] == ORDER_START for task in tasks):
        found.append(f"{group_id}: a rank may start before all are claimed")
    if status == RUNNING and row["ending"] is None and not {task["status"] for task in tasks} <= {RUNNING, EXITED}:
        found.append(f"{group_id} is running with ranks {dict(statuses)}")
    if status == "completed" and any((task["status"], task["exit_code"]) != (EXITED, 0) for task in tasks):
        found.append(f"{group_id} completed without every rank at exit 0")
    if status == "completed" and row["task_type"] in ENDLESS:
        found.append(f"{group_id} is {row['task_type']} and completed")
    if row.get("rebuild") and row["task_type"] not in ENDLESS:
        found.append(f"{group_id} is {row['task_type']} and was built again after a failure")
    if status == "failed" and not row["failure"]:
        found.append(f"{group_id} failed without a failure")
    if any(task["order"] == ORDER_START and task["status"] not in (STARTING, RUNNING) for task in tasks):
        found.append(f"{group_id}: a start order for a rank that is over")
    if any(task["status"] == CANCELLED and task["started_ms"] for task in tasks):
        found.append(f"{group_id}: a rank was cancelled after it started")
    strange = {event["kind"] for _, event in store.scan("event", f"{group_id}/")} - set(EVENT_KINDS)
    if strange:
        found.append(f"{group_id}: events of undocumented kinds {sorted(strange)}")
    events = [int(key.rsplit("/", 1)[1]) for key, _ in store.scan("event", f"{group_id}/")]
    if events != list(range(1, row["events"] + 1)):
        found.append(f"{group_id}: events are not numbered 1..{row['events']}")
