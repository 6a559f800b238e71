"""One scheduler pass.

Naively each group takes what is free, and a large one at the head waits for ever while small ones fill every hole. So a
group that cannot be placed keeps every node it could use, and those behind it get only what it would never miss: nodes
it cannot use, and cards that would not be enough for it, whoever ends first.
"""

from typing import Any

from mesh.core.sched.pool import Pool, free_port, seat_of
from mesh.core.sched.reasons import (
    Tally,
    after_try,
    endless,
    in_line,
    nodes_missing,
    paused,
    tally,
    too_small,
    why_waiting,
)
from mesh.core.sched.view import Bind, Key, MeshView, Plan, Waiting

BINDS_PER_PASS = 64  # a pass stays short; the next one follows at once
CARDS_BY_UUID = 2048  # in one bind; more would outgrow a log entry and are named by their index on the node
EXPLAINED = 200  # places in the line whose reasons carry numbers


def plan(view: MeshView, now_ms: int) -> Plan:
    """now_ms: Unix time, comparable with the leader's stamps in penalties and windows."""
    if view.paused is not None:
        return Plan(
            (), {group.group_id: paused(view.paused) for group in view.queue}, f"Scheduling is paused {view.paused}."
        )
    pool = Pool([seat_of(node, now_ms) for node in view.nodes], now_ms)
    queue = sorted(view.queue, key=lambda group: group.place)
    binds: list[Bind] = []
    reasons: dict[str, dict[str, Any]] = {}
    tallies: dict[Key, Tally] = {}
    head: Waiting | None = None
    for group in queue:
        if len(binds) == BINDS_PER_PASS:
            break
        if group.not_before_ms > now_ms:
            continue  # its reason says so; it keeps nobody's place
        bind = _place(pool, group)
        if bind is not None:
            binds.append(bind)
            continue
        head = head or group
        key = pool.key_of(group)
        ever, ready = pool.capacity(key)
        if group.n_nodes > ever:
            reasons[group.group_id] = too_small(pool, group, ever)
            continue
        if group.n_nodes > ready:
            reasons[group.group_id] = nodes_missing(pool, group, ever, ready)
            continue
        if group.n_nodes > pool.by_itself(key):
            reasons[group.group_id] = endless(pool, group)
            continue
        if len(reasons) >= EXPLAINED:
            reasons[group.group_id] = in_line()
        else:
            seen = tallies.get(key) or tally(pool, key)
            if pool.is_reserved(key):
                # The next one like it waits too, and what little changes for it in this pass need not be counted anew.
                tallies[key] = seen
            reasons[group.group_id] = why_waiting(pool, group, seen)
        pool.reserve(group)
    for group in queue:
        if group.tried and group.group_id in reasons:
            reasons[group.group_id] = after_try(reasons[group.group_id], group.tried)
    return Plan(tuple(binds), reasons, _sentence(binds, queue, reasons, head))


def _place(pool: Pool, group: Waiting) -> Bind | None:
    if group.n_nodes > pool.capacity(pool.key_of(group))[1]:
        return None
    ranks = pool.place(group)
    if ranks is None:
        return None
    attempt = group.attempt + 1
    by_index = group.n_nodes * group.per_node_gpu > CARDS_BY_UUID
    port = free_port(ranks[0][0].ports, group.group_id, attempt)  # the declared ones are taken by now
    ranks[0][0].ports.add(port)
    return Bind(
        group.group_id,
        attempt,
        tuple(
            {
                "rank": rank,
                "node": seat.node_id,
                "gpus": [card.index if by_index else card.uuid for card in cards],
                "port": port if rank == 0 else 0,
            }
            for rank, (seat, cards) in enumerate(ranks)
        ),
    )


def _sentence(binds: list[Bind], queue: list[Waiting], reasons: dict[str, dict[str, Any]], head: Waiting | None) -> str:
    if not queue:
        return "Nothing waits."
    placed = f"Placed {len(binds)} of {len(queue)} waiting groups"
    return (
        f"{placed}."
        if head is None
        else f"{placed}; {head.name} is the first to wait: {reasons[head.group_id]['text']}."
    )
