"""What the console knows of the mesh: fed by frames of the change feed, read by screens, and a record of what changed
since the last repaint."""

from collections.abc import Iterable
from typing import Any

from console.core.group_list import Progress
from console.core.rank_table import RankNow
from console.store.gossip import GossipSeen
from console.store.rows import Group, Hold, Node, group_of_row, hold_of_row, node_of_row, queue_key, with_reason
from console.store.telemetry import Telemetry
from schemas.states import TERMINAL

ENDED_KEPT = 2000  # finished groups; the list of them goes on in `heteroflow ls`
_KEPT = frozenset(("group", "hold", "node"))


class MeshStore:
    """`dirty_groups` and `dirty_mesh` are taken by the tick.

    Rows of groups are read when someone looks at groups, which the tick does: of a row that changed ten times between
    two looks only the last state is."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._unread: dict[str, dict[str, Any] | None] = {}  # by group id, None: it is gone
        self._brief: dict[str, dict[str, Any]] = {}  # the row that a group was read from, where it was a brief one
        self.nodes: dict[str, Node] = {}
        self.holds: dict[str, Hold] = {}
        self.cluster: dict[str, Any] = {}
        self.progress: dict[str, Progress] = {}
        self.ranks: dict[str, dict[int, RankNow]] = {}
        self.utils: dict[str, float | None] = {}
        self.gossip = GossipSeen()
        self.dirty_groups: set[str] = set()
        self.dirty_mesh = False
        self.loaded = False
        self._held: dict[str, set[str]] = {}
        self._by_status: dict[str, dict[str, Group]] = {}
        self._cards: tuple[int, int] | None = None
        self._ready: int | None = None
        self._in_snapshot = False
        self._seen: set[tuple[str, str]] = set()

    def apply(self, frame: dict[str, Any]) -> None:
        """A frame of `/watch` over active groups. A snapshot replaces what was known of what is active."""
        if "snapshot" in frame:
            if not self._in_snapshot:
                self._in_snapshot, self._seen = True, set()
            for entity, key, row in frame["snapshot"]:
                if entity in _KEPT:
                    self._seen.add((entity, key))
                self._change(entity, key, row)
            if not frame.get("more"):
                self._forget_unseen()
                self._in_snapshot, self.loaded = False, True
        else:
            for entity, key, row in frame.get("changes", ()):
                self._change(entity, key, row)

    def add_ended(self, rows: Iterable[dict[str, Any]]) -> None:
        """Finished groups from `/task-groups`; what the feed has said meanwhile is newer."""
        for row in rows:
            group = group_of_row(row)
            known = self.groups.get(group.id)
            if known is None or (known.terminal and known.attempt <= group.attempt):
                self._brief.pop(group.id, None)
                self._put_group(group)
        self._trim()

    def take_telemetry(self, said: Telemetry) -> bool:
        """True where anything is new."""
        changed = {
            group_id
            for group_id in {*said.groups, *self.progress}
            if said.groups.get(group_id) != self.progress.get(group_id)
            or said.ranks.get(group_id) != self.ranks.get(group_id)
        }
        if not changed and said.cards == self.utils:
            return False
        self.dirty_mesh |= said.cards != self.utils
        self.progress, self.ranks, self.utils = said.groups, said.ranks, said.cards
        self.dirty_groups |= changed
        return True

    def take_gossip(self, seen: GossipSeen) -> bool:
        """True where anything is new."""
        if seen == self.gossip:
            return False
        self.gossip = seen
        self._mesh_changed()
        return True

    def stalled(self) -> int:
        """Running groups that are called stalled."""
        return sum(
            bool(progress.stalled) and (group := self.groups.get(group_id)) is not None and not group.terminal
            for group_id, progress in self.progress.items()
        )

    def _change(self, entity: str, key: str, row: dict[str, Any] | None) -> None:
        if entity == "group":
            self._unread[key] = row
        elif entity == "hold":
            self._put_hold(key, hold_of_row(key, row) if row is not None else None)
        elif entity == "node":
            if row is None:
                self.nodes.pop(key, None)
            else:
                self.nodes[key] = node_of_row(row)
            self._mesh_changed()
        elif entity == "meta" and key == "cluster" and row is not None:
            self.cluster = {name: row.get(name) for name in ("cluster_id", "epoch", "profile", "voters", "created_ms")}
            self._mesh_changed()

    @property
    def groups(self) -> dict[str, Group]:
        """By id."""
        self._read_groups()
        return self._groups

    def _read_groups(self) -> None:
        unread, self._unread = self._unread, {}
        for key, row in unread.items():
            if row is None:
                self._drop_group(key)
            else:
                self._put_group(self._group_of(key, row))

    def _group_of(self, key: str, row: dict[str, Any]) -> Group:
        """Most rows of a busy mesh say anew why a group waits, and nothing else."""
        known, before = self._groups.get(key), self._brief.pop(key, None)
        if "document" not in row:
            self._brief[key] = row
            if known and before and {**before, "pending_reason": None} == {**row, "pending_reason": None}:
                return with_reason(known, row)
        return group_of_row(row)

    def _put_group(self, group: Group) -> None:
        old = self._groups.get(group.id)
        if old != group:
            if old is not None:
                del self._by_status[old.status][group.id]
            self._by_status.setdefault(group.status, {})[group.id] = group
            self._groups[group.id] = group
            self.dirty_groups.add(group.id)

    def _drop_group(self, group_id: str) -> None:
        self._brief.pop(group_id, None)
        old = self._groups.pop(group_id, None)
        if old is not None:
            del self._by_status[old.status][group_id]
            self.dirty_groups.add(group_id)

    def _put_hold(self, key: str, hold: Hold | None) -> None:
        old = self.holds.pop(key, None)
        if old is not None:
            self._held.get(old.node, set()).discard(key)
        if hold is not None:
            self.holds[key] = hold
            self._held.setdefault(hold.node, set()).add(key)
        self._mesh_changed()

    def _mesh_changed(self) -> None:
        self.dirty_mesh, self._cards, self._ready = True, None, None

    def _forget_unseen(self) -> None:
        """What was active and is in no new snapshot has ended or gone; finished ones are kept as they were."""
        for key in [
            key for key, group in self.groups.items() if not group.terminal and ("group", key) not in self._seen
        ]:
            self._drop_group(key)
        for key in [key for key in self.holds if ("hold", key) not in self._seen]:
            self._put_hold(key, None)
        for key in [key for key in self.nodes if ("node", key) not in self._seen]:
            del self.nodes[key]
            self._mesh_changed()
        self._seen = set()

    def _trim(self) -> None:
        ended = self.in_status(*sorted(TERMINAL))
        if len(ended) > ENDED_KEPT:
            ended.sort(key=lambda group: group.ended_ms or 0)
            for group in ended[: len(ended) - ENDED_KEPT]:
                self._drop_group(group.id)

    def holds_of(self, node: str) -> list[Hold]:
        return [self.holds[key] for key in sorted(self._held.get(node, ()))]

    def ready_nodes(self) -> int:
        if self._ready is None:
            self._ready = sum(node.state == "ready" for node in self.nodes.values())
        return self._ready

    def cards(self) -> tuple[int, int]:
        """(in use or being cleaned, all) on ready nodes."""
        if self._cards is None:
            self._cards = self._counted_cards()
        return self._cards

    def _counted_cards(self) -> tuple[int, int]:
        total = sum(len(node.cards) for node in self.nodes.values() if node.state == "ready")
        used = sum(
            len(hold.cards)
            for hold in self.holds.values()
            if (node := self.nodes.get(hold.node)) is not None and node.state == "ready"
        )
        return used, total

    def counts(self) -> dict[str, int]:
        """How many groups have each status."""
        self._read_groups()
        return {status: len(groups) for status, groups in self._by_status.items()}

    def in_status(self, *statuses: str) -> list[Group]:
        self._read_groups()
        return [group for status in statuses for group in self._by_status.get(status, {}).values()]

    def queue(self) -> list[Group]:
        """In the order in which the scheduler considers them."""
        return sorted(self.in_status("pending"), key=queue_key)

    def take_dirty(self) -> tuple[set[str], bool]:
        self._read_groups()
        dirty, mesh = self.dirty_groups, self.dirty_mesh
        self.dirty_groups, self.dirty_mesh = set(), False
        return dirty, mesh
