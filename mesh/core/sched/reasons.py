"""Why a group waits, in numbers and in words."""

from dataclasses import dataclass
from typing import Any

from mesh.core.sched.pool import Pool, Seat
from mesh.core.sched.view import Key, Waiting
from schemas.instants import iso_utc

# filter -> (words for one or many nodes). The first filter that refuses a node is the one counted.
FILTERS: dict[str, str] = {
    "lost": "lost",
    "no_engine": "without a container engine",
    "containers_only": "for containers only",
    "engine_down": "with the container engine down",
    "gpu_type": "other gpu_type",
    "too_few_gpus": "too few GPUs",
    "cordoned": "cordoned",
    "maintenance": "with maintenance before it would be over",
    "cleaning": "cards still being cleaned",
    "busy": "too few free GPUs",
    "port_in_use": "with a port in use",
    "resting": "just failed a claim",
    "reserved": "reserved for a group ahead",
}
_NAMED = 4
_TRIED_MAX = 1000


@dataclass(frozen=True, slots=True)
class Tally:
    """How the nodes answer one request. free: cards in total; most: on one node; keeper: the first group ahead that
    nodes are kept for; keeper_free: cards that it could use."""

    refused: dict[str, int]
    passing: int
    free: int
    most: int
    keeper: Waiting | None
    keeper_free: int


def refusing_filter(seat: Seat, key: Key) -> str | None:
    types, count, in_container, ports, _ = key
    if seat.lost:
        return "lost"
    if seat.containers != in_container:
        return "no_engine" if in_container else "containers_only"
    if seat.engine_down:
        return "engine_down"
    total = seat.all_of(types)
    if total < count:
        return "gpu_type" if types and seat.total and not total else "too_few_gpus"
    if seat.cordoned:
        return "cordoned"
    if seat.closed_to(key):
        return "maintenance"
    free = seat.free_of(types)
    if free < count:
        return "cleaning" if free + seat.cleaning >= count else "busy"
    if not seat.ports.isdisjoint(ports):
        return "port_in_use"
    if seat.resting:
        return "resting"
    return "reserved" if seat.keeps_out(key) else None


def tally(pool: Pool, key: Key) -> Tally:
    counts = dict.fromkeys(FILTERS, 0)
    keeper: Waiting | None = None
    free_total = most = 0
    for seat in pool.seats:
        refusal = refusing_filter(seat, key)
        if seat.ready and seat.containers == key[2] and not seat.closed_to(key):
            free = seat.free_of(key[0])
            free_total, most = free_total + free, max(most, free)
        if refusal is not None:
            counts[refusal] += 1
        if refusal == "reserved" and seat.keeper and (keeper is None or seat.keeper.place < keeper.place):
            keeper = seat.keeper
    refused = {name: count for name, count in counts.items() if count}
    keeper_free = _free_for(pool, keeper) if keeper else 0
    return Tally(refused, len(pool.seats) - sum(refused.values()), free_total, most, keeper, keeper_free)


def _free_for(pool: Pool, group: Waiting) -> int:
    open_to = [seat for seat in pool.seats if seat.ready and seat.containers == group.in_container]
    return sum(seat.free_of(group.gpu_types) for seat in open_to)


def why_waiting(pool: Pool, group: Waiting, seen: Tally) -> dict[str, Any]:
    """seen: as it was before the group's own reservation."""
    details: dict[str, Any] = {
        **_wanted(pool, group),
        "pass": seen.passing,
        "refused": seen.refused,
        "free_gpus": seen.free,
        "most_free_on_one_node": seen.most,
    }
    if seen.keeper is not None and seen.passing + seen.refused["reserved"] >= group.n_nodes:
        return _behind(seen.keeper, seen.keeper_free, details)
    text = f"needs {needs(group)}: {seen.passing} of {len(pool.seats)} nodes pass"
    if seen.refused:
        text += "; " + ", ".join(f"{count} {FILTERS[name]}" for name, count in seen.refused.items())
    if seen.passing >= group.n_nodes:
        text += f"; but no {group.n_nodes} of them with one gpu_type"
        return {"code": "mixed_gpu_types", "text": text, "details": details}
    if seen.free >= group.n_nodes * group.per_node_gpu > 0:
        text += f"; {seen.free} GPUs free in total, at most {seen.most} on one node"
    return {"code": "insufficient_gpus", "text": text, "details": details}


def _behind(keeper: Waiting, free: int, details: dict[str, Any]) -> dict[str, Any]:
    wanted = keeper.n_nodes * keeper.per_node_gpu
    # behind_tenant: who may be told whom he waits for.
    details.update(behind=keeper.group_id, behind_name=keeper.name, behind_tenant=keeper.tenant)
    details.update(behind_needs=wanted, behind_free=free)
    return {"code": "behind", "text": f"waits behind {keeper.name} (needs {wanted}, free {free})", "details": details}


def too_small(pool: Pool, group: Waiting, ever: int) -> dict[str, Any]:
    """Where nodes of the other kind would have sufficed, the code says so."""
    types = pool.key_of(group)[0]
    other_kind = (types, group.per_node_gpu, not group.in_container, (), 0)
    other = [seat for seat in pool.seats if seat.could_take(types, other_kind)]
    code, note = "cluster_too_small", ""
    if other:
        nodes = f"{len(other)} node{'s' if len(other) > 1 else ''}"
        if ever + len(other) >= group.n_nodes:
            code = "no_engine" if group.in_container else "containers_only"
        note = (
            f" (no container engine on {nodes})"
            if group.in_container
            else f" (for containers only, and the group names no task.image: {nodes})"
        )
    return {
        "code": code,
        "text": f"needs {needs(group)}, and the whole mesh has {ever} such nodes{note}; it waits until nodes join",
        "details": _wanted(pool, group) | {"could_ever": ever},
    }


def nodes_missing(pool: Pool, group: Waiting, ever: int, ready: int) -> dict[str, Any]:
    """Such nodes there are, but they are lost or cordoned, have maintenance ahead, or their container engines are
    down."""
    key = pool.key_of(group)
    fits = [seat for seat in pool.seats if seat.could_take(key[0], key) and not seat.lost]
    down = [seat.node_id for seat in fits if seat.engine_down and not seat.cordoned]
    cordoned = [seat.node_id for seat in fits if seat.cordoned]
    closing = [seat for seat in fits if seat.ready and seat.closed_to(key)]
    note = f"; {len(cordoned)} cordoned ({_named(cordoned)})" if cordoned else ""
    note += _maintenance(group, closing)
    note += f"; the container engine of {_named(down)} does not answer" if down else ""
    if ready + len(down) >= group.n_nodes:
        code, until = "engine_down", "it answers" if len(down) == 1 else "they answer"
    elif closing and ready + len(down) + len(closing) >= group.n_nodes:
        code, until = "maintenance", "that is over"
    elif cordoned and ready + len(down) + len(cordoned) + len(closing) >= group.n_nodes:
        code, until = "cordoned", "a node is uncordoned"
    else:
        code, until = "nodes_lost", "lost nodes return"
    return {
        "code": code,
        "text": f"needs {needs(group)}, and only {ready} of {ever} such nodes are ready{note}; it waits until {until}",
        "details": _wanted(pool, group)
        | {"could_ever": ever, "ready": ready, "engine_down": down[:_NAMED]}
        | ({"cordoned": cordoned[:_NAMED]} if cordoned else {})
        | ({"maintenance": [seat.node_id for seat in closing][:_NAMED]} if closing else {}),
    }


def endless(pool: Pool, group: Waiting) -> dict[str, Any]:
    """Waiting for what ends only when somebody stops it: nothing is kept for a day that nobody can name."""
    seen = tally(pool, pool.key_of(group))
    ports = sorted({port for seat in pool.seats for port in seat.endless_ports.intersection(group.ports)})
    what = " and ".join(
        filter(None, ("cards" if seen.refused.get("busy") else "", f"port {ports[0]}" if ports else ""))
    )
    return {
        "code": "held_by_inference",
        "text": f"needs {needs(group)}, and inference groups, which run until they are stopped, hold {what or 'nodes'}",
        "details": _wanted(pool, group) | {"by_itself": pool.by_itself(pool.key_of(group)), "ports": ports[:_NAMED]},
    }


def _maintenance(group: Waiting, closing: list[Seat]) -> str:
    if not closing:
        return ""
    first_ms = min(seat.closes_ms or 0 for seat in closing)
    named = _named([seat.node_id for seat in closing])
    runs = "it names no deadline_s" if group.runs_ms is None else f"its deadline_s leaves it {group.runs_ms // 1000} s"
    return f"; {named} will have maintenance from {iso_utc(first_ms)[:16].replace('T', ' ')} UTC, and {runs}"


def paused(words: str) -> dict[str, Any]:
    """Everybody waits alike while scheduling is paused."""
    return {
        "code": "scheduling_paused",
        "text": f"scheduling is paused {words}; it waits until it is resumed",
        "details": {},
    }


def _wanted(pool: Pool, group: Waiting) -> dict[str, Any]:
    return {
        "n_nodes": group.n_nodes,
        "per_node_gpu": group.per_node_gpu,
        "gpu_types": list(group.gpu_types),
        "nodes": len(pool.seats),
    }


def _named(nodes: list[str]) -> str:
    shown = ", ".join(nodes[:_NAMED])
    return f"{shown} and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else shown


def after_try(reason: dict[str, Any], tried: str) -> dict[str, Any]:
    """That nodes rest from a claim says nothing to who could mend what the claim failed for."""
    return reason | {"text": f"{reason['text']}; its last try: {tried[:_TRIED_MAX].rstrip('.')}"}


def in_line() -> dict[str, Any]:
    """Deep in a long queue: the same words for all, so that a start at its head does not rewrite ten thousand
    reasons."""
    return {
        "code": "in_line",
        "text": "waits in line behind groups of higher priority or submitted earlier",
        "details": {},
    }


def needs(group: Waiting) -> str:
    nodes = "1 node" if group.n_nodes == 1 else f"{group.n_nodes} nodes"
    cards = " or ".join(group.gpu_types) or ("GPU" if group.per_node_gpu == 1 else "GPUs")
    wanted = f"{nodes} x {group.per_node_gpu} {cards}"
    if not group.per_node_gpu:
        wanted = nodes + (f" that {'has' if group.n_nodes == 1 else 'have'} {cards}" if group.gpu_types else "")
    return wanted + (f" with port {', '.join(map(str, group.ports))} free" if group.ports else "")
