"""The change feed: what changed at one log index, and which of it a subscriber asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mesh.core.state.store import Row

FEED_INDEXES_KEPT = 50_000
PRIVATE = frozenset({"request", "request_queue", "client", "api_key", "signer", "audit", "audit_span", "ended"})
"""Bookkeeping of request ids and of what ended when, and what is only for agents and administrators: in the state and
its hash, but nobody watches it."""


@dataclass(frozen=True, slots=True)
class Change:
    """row is the encoded row, None when it was deleted; nodes are the hosts the row speaks of, now or before."""

    entity: str
    key: str
    row: bytes | None
    nodes: tuple[str, ...] = ()


@dataclass(slots=True)
class FeedFrame:
    """Everything that changed at one index; a key written twice shows its last row. Never changed once made."""

    index: int
    changes: tuple[Change, ...]
    _by_node: dict[str, tuple[Change, ...]] | None = field(default=None, compare=False, repr=False)

    def of_node(self, node: str) -> tuple[Change, ...]:
        """What matters to one host. A bind of a thousand hosts is one frame that all their agents wait for, so the
        frame is sorted by host once, not searched by each."""
        if self._by_node is None:
            self._by_node = _sorted_by_node(self.changes)
        return self._by_node.get(node, self._by_node[""])


def _sorted_by_node(changes: tuple[Change, ...]) -> dict[str, tuple[Change, ...]]:
    """Under "" what every host is told; the others' changes include it, in order."""
    everyone = [(at, change) for at, change in enumerate(changes) if change.entity == "meta"]
    found: dict[str, list[tuple[int, Change]]] = {"": []}
    for at, change in enumerate(changes):
        if change.entity != "meta":
            for node in change.nodes:
                found.setdefault(node, []).append((at, change))
    return {
        node: tuple([change for _, change in sorted(own + everyone, key=lambda item: item[0])])
        for node, own in found.items()
    }


def nodes_of(entity: str, key: str, old: Row | None, new: Row | None) -> tuple[str, ...]:
    """The hosts a change matters to."""
    if entity == "node":
        return (key,)
    if entity == "hold":
        return (key.split("/", 1)[0],)
    if entity == "task":
        row = new if new is not None else old
        return (str(row["node"]),) if row is not None and "node" in row else ()
    if entity == "group":
        nodes: dict[str, None] = {}
        for row in (old, new):
            for node in (row or {}).get("nodes") or ():
                nodes[str(node)] = None
        return tuple(nodes)
    return ()


_ACTIVE = frozenset({"meta", "node", "group", "active", "task", "hold", "ckpt"})


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """kind: all, active, node or group; key: the node's or group's id."""

    kind: str
    key: str = ""

    @staticmethod
    def parse(raw: object) -> FeedFilter:
        """Raises ValueError with the reason."""
        if isinstance(raw, Mapping) and len(raw) == 1:
            ((kind, value),) = raw.items()
            if kind in ("all", "active") and value is True:
                return FeedFilter(kind)
            if kind in ("node", "group") and isinstance(value, str) and value:
                return FeedFilter(kind, value)
        raise ValueError('a filter is {"all": true}, {"active": true}, {"node": id} or {"group": id}')

    def _wants_group(self, entity: str, key: str) -> bool:
        if entity in ("group", "active"):
            return key == self.key
        if entity in ("task", "event"):
            return key.startswith(self.key + "/")
        if entity == "hold":
            return f"/{self.key}/" in key
        return False

    def select(self, frame: FeedFrame) -> tuple[Change, ...]:
        if self.kind == "all":
            return frame.changes
        if self.kind == "node":
            return frame.of_node(self.key)
        if self.kind == "active":
            return tuple([change for change in frame.changes if change.entity in _ACTIVE])
        return tuple([change for change in frame.changes if self._wants_group(change.entity, change.key)])


@dataclass(frozen=True, slots=True)
class Token:
    """A place in the feed of one mesh, the same on every voter."""

    cluster_id: str
    epoch: int
    index: int

    def __str__(self) -> str:
        return f"{self.cluster_id}.{self.epoch}.{self.index}"

    @staticmethod
    def parse(raw: object) -> Token:
        """Raises ValueError for anything that is not a token."""
        parts = raw.rsplit(".", 2) if isinstance(raw, str) else []
        if len(parts) != 3 or not (
            parts[0] and parts[1].isascii() and parts[1].isdigit() and parts[2].isascii() and parts[2].isdigit()
        ):
            raise ValueError("a token has the form cluster.epoch.index")
        return Token(parts[0], int(parts[1]), int(parts[2]))


def coalesce(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Only the last row of each key, in the order of those last writes; hosts of all writes are kept."""
    last: dict[tuple[str, str], Change] = {}
    for change in changes:
        name = (change.entity, change.key)
        before = last.pop(name, None)
        if before is not None and before.nodes != change.nodes:
            nodes = tuple(dict.fromkeys(before.nodes + change.nodes))
            change = Change(change.entity, change.key, change.row, nodes)
        last[name] = change
    return tuple(last.values())
