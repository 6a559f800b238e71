"""The controllers' picture of the mesh, fed by feed frames: nodes, holds and groups that are not over. It keeps what a
decision needs and no document, so that ten thousand waiting groups stay small and thousands of old ones cost
nothing."""

from dataclasses import dataclass, field
from typing import Any

from mesh.core.sched.view import Card, MeshView, NodeView, Waiting
from mesh.core.state.bind import ports_of
from mesh.core.state.pause import KEY as PAUSE
from mesh.core.state.shape import shape_of
from mesh.core.state.time_limits import Limit, left_ms, limit_of
from schemas.instants import iso_utc
from schemas.rules.frameworks import NEED_ADDRESSES
from schemas.states import (
    CONTAINER_RUNTIMES,
    DRAIN_MOVE,
    HELD,
    NODE_LOST,
    NODE_READY,
    ORDER_START,
    PENDING,
    RELEASING,
    RUNNING,
    SCHEDULING,
    STARTING,
    STOPPING,
    TERMINAL,
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A group in `scheduling` or `starting`. nodes: by rank; in_container: its claims get an image; probe: what rank
    0's claim found; views: what the claims saw of the checkpoints, each once; resume: the document's own path;
    parent: the checkpoint of another group where it begins; needs_addresses: its ranks, or who looks for their ports,
    must know each one's; reach: at which addresses they reached rank 0."""

    group_id: str
    name: str
    status: str
    attempt: int
    ending: str | None
    nodes: tuple[str, ...]
    claimed: tuple[int, ...]
    port: int
    probe: dict[str, Any] | None
    resume: str | None
    tries: int
    in_container: bool = False
    needs_addresses: bool = False
    views: tuple[dict[str, Any], ...] = ()
    reach: dict[str, Any] | None = None
    parent: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """waiting: the code of each waiting group's reason, None where it has none yet; cards: of ready nodes;
    cordoned: of the ready nodes, those that take no new group."""

    waiting: tuple[str | None, ...]
    nodes: dict[str, int]
    cards: dict[str, int]
    cordoned: int


@dataclass(slots=True)
class View:
    """idx: the log index the picture is of."""

    idx: int = 0
    waiting: dict[str, Waiting] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    # (group, attempt) -> rank -> node of the ranks that were ordered to start and have not said that they did
    unstarted: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)
    # group -> its status, and what it was asked
    stops: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    _nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    _holds: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    _seen: dict[str, NodeView] = field(default_factory=dict)
    _operated: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    _paused: dict[str, Any] | None = None
    _sched: MeshView | None = None

    def reset(self, idx: int, rows: list[tuple[str, str, dict[str, Any]]]) -> None:
        """A snapshot replaces everything."""
        for part in (self.waiting, self.attempts, self.limits, self.unstarted, self.stops):
            part.clear()
        for kept in (self._nodes, self._holds, self._seen, self._operated):
            kept.clear()
        self._paused = None
        self.extend(idx, rows)

    def extend(self, idx: int, changes: list[Any]) -> None:
        """The changes of one index, or a further part of a snapshot: `[entity, key, row | None]` each."""
        for entity, key, row in changes:
            change = _CHANGES.get(entity)
            if change is not None:
                change(self, key, row)
        self.idx = idx
        self._sched = None

    def size(self) -> int:
        """How much a pass has to look at."""
        return len(self.waiting) + len(self.attempts) + len(self._nodes)

    def tally(self) -> Tally:
        """Changes nothing, so it may be asked while a pass looks at the same picture."""
        ready = {node_id: node for node_id, node in self._nodes.items() if node["ready"]}
        cards = {"free": sum(len(node["cards"]) for node in ready.values()), HELD: 0, RELEASING: 0}
        for node_id in ready:
            for hold in self._holds.get(node_id, {}).values():
                cards[hold["state"]] = cards.get(hold["state"], 0) + len(hold["gpus"])
                cards["free"] -= len(hold["gpus"])
        nodes = {NODE_READY: len(ready), NODE_LOST: len(self._nodes) - len(ready)}
        waiting = tuple((group.reason or {}).get("code") for group in self.waiting.values())
        return Tally(waiting, nodes, cards, sum(1 for node in ready.values() if node["cordoned"]))

    def api_addr(self, node_id: str) -> str | None:
        node = self._nodes.get(node_id)
        return node["api_addr"] if node is not None else None

    def sched(self) -> MeshView:
        """What the scheduler looks at; shares what did not change with the last one."""
        if self._sched is None:
            for node_id in self._nodes:
                if node_id not in self._seen:
                    self._seen[node_id] = self._look_at(node_id)
            nodes = tuple(self._seen[node_id] for node_id in sorted(self._nodes))
            self._sched = MeshView(nodes, tuple(self.waiting.values()), _words(self._paused))
        return self._sched

    def _look_at(self, node_id: str) -> NodeView:
        node = self._nodes[node_id]
        holds = self._holds.get(node_id, {}).values()
        taken = {uuid for hold in holds for uuid in hold["gpus"]}
        cards = tuple(Card(*item) for item in node["cards"])
        endless = [hold for hold in holds if hold.get("endless") and hold["state"] == HELD]
        kept = {uuid for hold in endless for uuid in hold["gpus"]}
        return NodeView(
            node_id=node_id,
            ready=node["ready"],
            cards=cards,
            free=tuple(card for card in cards if card.uuid not in taken),
            holds=tuple(sorted(len(hold["gpus"]) for hold in holds if hold["gpus"])),
            cleaning=sum(len(hold["gpus"]) for hold in holds if hold["state"] == RELEASING),
            ports=frozenset(port for hold in holds for port in ports_of(hold)),
            endless=tuple(card for card in cards if card.uuid in kept),
            endless_ports=frozenset(port for hold in endless for port in ports_of(hold)),
            tasks=len(holds),
            penalty_score=node["penalty"]["score"],
            penalty_ms=node["penalty"]["at_ms"],
            containers=node["containers"],
            engine_down=node["engine_down"],
            cordoned=node["cordoned"],
            closes_ms=_closes_ms(self._operated.get(node_id, ({}, {}))[1]),
        )

    def operated(self) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
        """(node, its drain, its maintenance window) where there is any, {} for what there is not."""
        return [(node_id, *self._operated[node_id]) for node_id in sorted(self._operated)]

    def is_empty(self, node_id: str) -> bool:
        return not self._holds.get(node_id)

    def groups_on(self, node_id: str) -> list[tuple[str, int, bool]]:
        """(group, attempt, whether it never ends by itself) of ranks that are neither ending nor over."""
        found: dict[tuple[str, int, bool], None] = {}
        for key, hold in sorted(self._holds.get(node_id, {}).items()):
            _, group_id, attempt, _ = key.split("/")
            if hold["state"] == HELD:
                found[group_id, int(attempt), bool(hold.get("endless"))] = None
        return list(found)

    def newest_stamp_ms(self) -> int:
        """Of the leaders' stamps kept in nodes, limits and groups that wait: no leader's time is before it."""
        stamps = [node["penalty"]["at_ms"] for node in self._nodes.values()]
        stamps += [part["at_ms"] for _, *parts in self.operated() for part in parts if part]
        stamps += [limit.since_ms for limit in self.limits.values()]
        stamps += [group.rests_since_ms for group in self.waiting.values()]
        return max(stamps, default=0)

    def _node(self, node_id: str, row: dict[str, Any] | None) -> None:
        self._seen.pop(node_id, None)
        self._operated.pop(node_id, None)
        if row is None:
            self._nodes.pop(node_id, None)
            return
        drain, window = row.get("drain") or {}, row.get("window") or {}
        if drain or window:
            self._operated[node_id] = (drain, window)
        cards = sorted((gpu["index"], gpu["uuid"], gpu["type"]) for gpu in row["gpus"])
        self._nodes[node_id] = {
            "api_addr": row["api_addr"],
            "ready": row["state"] == NODE_READY,
            "penalty": row["penalty"],
            "containers": row["runtime"] in CONTAINER_RUNTIMES,
            "engine_down": row.get("engine_down") is not None,
            "cordoned": row.get("cordon") is not None,
            "cards": [(uuid, kind, index) for index, uuid, kind in cards],
        }

    def _meta(self, key: str, row: dict[str, Any] | None) -> None:
        if key == PAUSE:
            self._paused = row

    def _hold(self, key: str, row: dict[str, Any] | None) -> None:
        node_id = key.split("/", 1)[0]
        self._seen.pop(node_id, None)
        if row is not None:
            self._holds.setdefault(node_id, {})[key] = row
        else:
            self._holds.get(node_id, {}).pop(key, None)

    def _group(self, group_id: str, row: dict[str, Any] | None) -> None:
        status = row["status"] if row is not None else None
        if row is None or status in TERMINAL or status != PENDING:
            self.waiting.pop(group_id, None)
        if status not in (SCHEDULING, STARTING):
            self.attempts.pop(group_id, None)
        if row is not None and row.get("stop_after") and status not in TERMINAL and status != STOPPING:
            self.stops[group_id] = (row["status"], row["stop_after"])
        else:
            self.stops.pop(group_id, None)
        self.limits.pop(group_id, None)
        if row is None or status not in (PENDING, SCHEDULING, STARTING, RUNNING):
            return
        shape = shape_of(row["document"])
        if isinstance(shape, str):
            return
        if (limit := limit_of(row, shape)) is not None:
            self.limits[group_id] = limit
        if status == RUNNING:
            return
        if status == PENDING:
            rests = [row.get("rebuild") or {}, row.get("retry") or {}]
            rest = max(rests, key=lambda found: int(found.get("not_before_ms", 0)))
            self.waiting[group_id] = Waiting(
                group_id=group_id,
                name=row["name"],
                priority=row["priority"],
                submit_idx=row["submit_idx"],
                attempt=row["attempt"],
                n_nodes=shape.n_nodes,
                per_node_gpu=shape.per_node_gpu,
                gpu_types=shape.gpu_types,
                in_container=shape.in_container,
                reason=row["pending_reason"],
                tenant=str(row.get("tenant") or ""),
                ports=shape.ports,
                not_before_ms=rest.get("not_before_ms", 0),
                rests_since_ms=rest.get("at_ms", 0),
                tried=_tried(row),
                avoid=(row.get("rebuild") or {}).get("avoid"),
                runs_ms=None if shape.deadline_s is None else left_ms(row, shape.deadline_s),
            )
            return
        self.attempts[group_id] = Attempt(
            group_id=group_id,
            name=row["name"],
            status=row["status"],
            attempt=row["attempt"],
            ending=row["ending"],
            nodes=tuple(row["nodes"]),
            claimed=tuple(row["claimed"]),
            port=row["master"]["port"],
            probe=row["probe"],
            resume=shape.resume,
            tries=row["phase_deadline_tries"],
            in_container=shape.in_container,
            views=tuple(row.get("views") or ()),
            reach=row.get("reach"),
            parent=row.get("parent"),
            needs_addresses=bool(shape.ports) or (shape.n_nodes > 1 and shape.framework in NEED_ADDRESSES),
        )

    def _task(self, key: str, row: dict[str, Any] | None) -> None:
        group_id, attempt, rank = key.split("/")
        ranks = self.unstarted.get((group_id, int(attempt)))
        if row is not None and row["status"] == STARTING and row["order"] == ORDER_START:
            self.unstarted.setdefault((group_id, int(attempt)), {})[int(rank)] = row["node"]
        elif ranks is not None:
            ranks.pop(int(rank), None)
            if not ranks:
                del self.unstarted[group_id, int(attempt)]


def _tried(row: dict[str, Any]) -> str:
    """Why its last attempt came to nothing."""
    retry = row.get("retry")
    return str(retry["text"]) if retry is not None and retry["attempt"] == row["attempt"] else ""


def _closes_ms(window: dict[str, Any]) -> int | None:
    """When what still runs there then is moved away. Of an open one the cordon says it."""
    if not window or window["open"]:
        return None
    grace_ms = 0 if window["mode"] == DRAIN_MOVE else window["deadline_s"] * 1000
    return int(window["from_ms"]) + grace_ms


def _words(paused: dict[str, Any] | None) -> str | None:
    if paused is None:
        return None
    return f"by {paused['by']} since {iso_utc(paused['at_ms'])}" + (
        f" ({paused['reason']})" if paused["reason"] else ""
    )


_CHANGES = {"meta": View._meta, "node": View._node, "hold": View._hold, "group": View._group, "task": View._task}
