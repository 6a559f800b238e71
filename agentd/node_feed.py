"""What the mesh wants of this host: the rows of its unreleased tasks, mirrored from the change feed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from agentd.core.reconcile import Order
from agentd.lively import lively
from agentd.runtime.base import TaskId
from schemas.errors import HeteroFlowError

log = logging.getLogger(__name__)
Row = dict[str, Any]
_RESUBSCRIBE_S = 1.0


class Subscriber(Protocol):
    def subscribe(self, feed_filter: dict[str, Any], token: str | None = None) -> AsyncIterator[dict[str, Any]]: ...


def task_id_of(row: Mapping[str, Any]) -> TaskId:
    return TaskId(str(row["group_id"]), int(row["attempt"]), int(row["rank"]))


class NodeFeed:
    """`index` is the log index up to which `tasks`, `groups` and `node` speak. Only rows still holding cards are kept:
    a host that ran ten thousand tasks mirrors the ten that matter."""

    def __init__(self, mesh: Subscriber, node_id: str, on_change: Callable[[], None]) -> None:
        self._mesh, self._node_id, self._on_change = mesh, node_id, on_change
        self.index = 0
        self.tasks: dict[TaskId, Row] = {}
        self.groups: dict[str, Row] = {}
        self.node: Row | None = None
        self._moved = asyncio.Event()
        self._snapshot_rows: list[Any] | None = None

    async def run(self) -> None:
        token: str | None = None
        while True:
            try:
                async for frame in lively(self._mesh.subscribe({"node": self._node_id}, token)):
                    self._take(frame)
                    token = frame.get("token", token)
            except HeteroFlowError as error:
                log.warning("change feed ended: %s", error)
            await asyncio.sleep(_RESUBSCRIBE_S)

    async def reached(self, index: int) -> None:
        while self.index < index:
            self._moved.clear()
            await self._moved.wait()

    async def claimed(self, group_id: str, attempt: int, rank: int) -> None:
        """Comes back once the mesh has heard that the rank is claimed."""
        while True:
            group = self.groups.get(group_id)
            if group is not None and group["attempt"] == attempt and rank in group["claimed"]:
                return
            self._moved.clear()
            await self._moved.wait()

    def orders(self) -> list[Order]:
        return [
            Order(
                key,
                int(row["token"]),
                str(row["order"]),
                str(row["status"]),
                int(row["seq"]),
                int(row.get("log_lost", 0)),
            )
            for key, row in self.tasks.items()
        ]

    def status_of(self, task_id: TaskId) -> str | None:
        row = self.tasks.get(task_id)
        return str(row["status"]) if row is not None else None

    def _take(self, frame: Mapping[str, Any]) -> None:
        if (snapshot := frame.get("snapshot")) is not None:
            if self._snapshot_rows is None:
                self._snapshot_rows = []
            self._snapshot_rows += snapshot
            if frame.get("more"):
                return
            self.tasks, self.groups, self.node = {}, {}, None
            changes, self._snapshot_rows = self._snapshot_rows, None
        else:
            changes = frame.get("changes", ())
        for entity, key, row in changes:
            self._put(entity, key, row)
        self._forget_idle_groups()
        self.index = max(self.index, int(frame["token"].rpartition(".")[2]))
        self._moved.set()
        self._on_change()

    def _put(self, entity: str, key: str, row: Row | None) -> None:
        if entity == "task":
            group_id, attempt, rank = key.split("/")
            task_id = TaskId(group_id, int(attempt), int(rank))
            if row is None or row["released"] or row["node"] != self._node_id:
                self.tasks.pop(task_id, None)
            else:
                self.tasks[task_id] = row
        elif entity == "group":
            if row is None:
                self.groups.pop(key, None)
            else:
                self.groups[key] = row
        elif entity == "node" and key == self._node_id:
            self.node = row

    def _forget_idle_groups(self) -> None:
        needed = {key.group_id for key in self.tasks}
        for group_id in [g for g in self.groups if g not in needed]:
            del self.groups[group_id]
