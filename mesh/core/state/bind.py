"""BindGroup: the plan of a scheduler that may have looked at an older state is verified here against this one, and
holds whole or not at all."""

from mesh.core.state.group import Group
from mesh.core.state.keys import attempt_prefix, hold_key
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.pause import is_paused
from mesh.core.state.reach import offer
from mesh.core.state.shape import Shape, shape_of
from mesh.core.state.store import Row, StateStore
from schemas.limits import PORT_MAX, PORT_MIN
from schemas.states import BOUND, CONTAINER_RUNTIMES, GONE, HELD, NODE_READY, ORDER_CLAIM, PENDING, SCHEDULING
from schemas.task_types import TRAINING


def bind_group(store: StateStore, idx: int, command: Row) -> Outcome:
    group = Group.load(store, command["group_id"], command["at_ms"])
    if group is None:
        return refused("no_such_group", f"group {command['group_id']} does not exist.")
    if group.status != PENDING:
        return refused("not_pending", f"group {group.id} is {group.status}, not pending.", status=group.status)
    if is_paused(store):
        return refused("scheduling_paused", "scheduling is paused; nothing new is placed.")
    if command["attempt"] != group.attempt + 1:
        return refused(
            "wrong_attempt", f"the next attempt of {group.id} is {group.attempt + 1}, not {command['attempt']}."
        )
    shape = shape_of(group.row["document"])
    assert isinstance(shape, Shape)
    placements = [_by_uuid(store, item) for item in sorted(command["placements"], key=lambda item: int(item["rank"]))]
    refusal = _gang_refusal(shape, placements) or _old_attempt_refusal(store, group)
    if refusal is not None:
        return refused(*refusal)
    for placement in placements:
        refusal = _card_refusal(store, shape, placement)
        if refusal is not None:
            return refused(*refusal, node=placement["node"])
    _bind(store, idx, group, shape, placements)
    return done(group_id=group.id, attempt=group.attempt, token=idx)


def _by_uuid(store: StateStore, placement: Row) -> Row:
    """Large gangs name cards by index. The index means the card that is there now; whether it is free is checked as for
    any."""
    if not any(isinstance(card, int) for card in placement["gpus"]):
        return placement
    node = store.get("node", placement["node"])
    uuids = {gpu["index"]: gpu["uuid"] for gpu in node["gpus"]} if node else {}
    cards = [uuids.get(card, str(card)) if isinstance(card, int) else card for card in placement["gpus"]]
    return {**placement, "gpus": cards}


def _gang_refusal(shape: Shape, placements: list[Row]) -> tuple[str, str] | None:
    if [placement["rank"] for placement in placements] != list(range(shape.n_nodes)):
        return "partial_gang", f"the plan does not place each of the {shape.n_nodes} ranks exactly once."
    if len({placement["node"] for placement in placements}) != shape.n_nodes:
        return "shared_node", "the plan puts two ranks on one node."
    if any(placement["port"] for placement in placements[1:]) or not PORT_MIN <= placements[0]["port"] <= PORT_MAX:
        return "bad_port", f"the plan must give rank 0 a port of {PORT_MIN}-{PORT_MAX} and the others none."
    if placements[0]["port"] in shape.ports:
        return "bad_port", f"port {placements[0]['port']} is one of task.ports, so it cannot be the master port too."
    return None


def _old_attempt_refusal(store: StateStore, group: Group) -> tuple[str, str] | None:
    """Two attempts alive at once would both write the checkpoints."""
    if group.attempt == 0:
        return None
    for _, task in store.scan("task", attempt_prefix(group.id, group.attempt)):
        if task["status"] not in GONE:
            return (
                "attempt_not_gone",
                f"rank {task['rank']} of attempt {group.attempt} on {task['node']} is {task['status']}.",
            )
    return None


def _card_refusal(store: StateStore, shape: Shape, placement: Row) -> tuple[str, str] | None:
    node_id, wanted = placement["node"], placement["gpus"]
    node = store.get("node", node_id)
    if node is None or node["state"] != NODE_READY:
        return "node_not_ready", f"node {node_id} is {node['state'] if node else 'unknown'}."
    if node.get("cordon") is not None:
        return "node_cordoned", f"node {node_id} was cordoned by {node['cordon']['by']}."
    if (node["runtime"] in CONTAINER_RUNTIMES) != shape.in_container:
        kind = "has no container engine" if shape.in_container else "takes containers only"
        return "wrong_runtime", f"node {node_id} {kind}."
    if node.get("engine_down") is not None:
        return "engine_down", f"node {node_id} can start no container now: {node['engine_down']}."
    if len(wanted) != shape.per_node_gpu or len(set(wanted)) != len(wanted):
        return (
            "wrong_card_count",
            f"rank {placement['rank']} needs {shape.per_node_gpu} different cards, the plan gives {len(wanted)}.",
        )
    types = {gpu["uuid"]: gpu["type"] for gpu in node["gpus"]}
    holds = [hold for _, hold in store.scan("hold", f"{node_id}/")]
    taken = {uuid for hold in holds for uuid in hold["gpus"]}
    for uuid in wanted:
        if uuid not in types:
            return "no_such_card", f"node {node_id} has no card {uuid}."
        if uuid in taken:
            return "card_taken", f"card {uuid} of node {node_id} is not free."
        if shape.gpu_types and types[uuid] not in shape.gpu_types:
            return (
                "wrong_card_type",
                f"card {uuid} of node {node_id} is a {types[uuid]}, not {' or '.join(shape.gpu_types)}.",
            )
    used = {port for hold in holds for port in ports_of(hold)}
    if taken_ports := sorted(used.intersection((placement["port"], *shape.ports))):
        return "port_taken", f"port {taken_ports[0]} of node {node_id} is in use by another group."
    return None


def ports_of(hold: Row) -> list[int]:
    """Those that a hold keeps from other groups."""
    return [port for port in (hold["port"], *hold.get("ports", ())) if port]


def _bind(store: StateStore, idx: int, group: Group, shape: Shape, placements: list[Row]) -> None:
    row = group.row
    row.update(
        attempt=group.attempt + 1,
        nodes=[placement["node"] for placement in placements],
        master={"addr": None, "port": placements[0]["port"]},
        probe=None,
        views=[],
        resume=None,
        phase_deadline_tries=0,
        claimed=[],
        tally={BOUND: len(placements)},
        pending_reason=None,
        failure=None,
    )
    meets = len(placements) > 1 and row["task_type"] == TRAINING
    offer(row, (store.get("node", placements[0]["node"]) or {}).get("addresses") if meets else None)
    for placement in placements:
        task = {
            "group_id": group.id,
            "attempt": group.attempt,
            "rank": placement["rank"],
            "node": placement["node"],
            "gpus": list(placement["gpus"]),
            "port": placement["port"],
            "status": BOUND,
            "order": ORDER_CLAIM,
            "token": idx,
            "seq": 0,
            "released": False,
            "exit_code": None,
            "signal": None,
            "reason": None,
            "bound_ms": group.at_ms,
            "started_ms": None,
            "ended_ms": None,
            "on_isolation": row["on_isolation"],
        }
        group.put_task(task)
        key = hold_key(task["node"], group.id, group.attempt, task["rank"])
        hold: Row = {"gpus": task["gpus"], "port": task["port"], "state": HELD}
        if shape.ports:
            hold["ports"] = list(shape.ports)
        if shape.endless:
            hold["endless"] = True
        store.put("hold", key, hold)
    nodes = row["nodes"]
    where = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
    group.move(SCHEDULING, f"Attempt {group.attempt} was placed on {where}; the agents are claiming.")
    group.save()
