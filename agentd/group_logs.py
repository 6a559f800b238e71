"""One reader's view of a group's logs: all ranks merged as they come, attempt after attempt, until the group has
ended."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from agentd.lively import lively
from agentd.log_service import HEARTBEAT_S, Item, LogService, Place
from agentd.node_feed import Row
from agentd.runtime.base import TaskId
from mesh.client import MeshClient
from schemas.errors import HeteroFlowError
from schemas.states import GONE, TERMINAL

_QUEUED_BATCHES = 16
_RESUBSCRIBE_S = 1.0


class GroupLogs:
    """`places`: where to begin in ranks already read, by (attempt, rank); all others begin at `place`.
    `only_attempt`: None follows the group from its current attempt (or the oldest of `places`) onward.
    `on_behalf`: headers that tell other agents who reads."""

    def __init__(
        self,
        mesh: MeshClient,
        service: LogService,
        group: Row,
        tasks: Mapping[TaskId, Row],
        *,
        only_rank: int | None,
        only_attempt: int | None,
        place: Place,
        places: Mapping[tuple[int, int], int],
        follow: bool,
        on_behalf: Mapping[str, str],
    ) -> None:
        self._mesh, self._service = mesh, service
        self._group, self._tasks = group, dict(tasks)
        self._only_rank, self._only_attempt, self._follow = only_rank, only_attempt, follow
        self._place, self._places = place, places
        self._on_behalf = on_behalf
        resumed = [attempt for attempt, _ in places]
        self._first = only_attempt or min(resumed, default=group["attempt"])
        self._batches: asyncio.Queue[list[Item]] = asyncio.Queue(_QUEUED_BATCHES)
        self._readers: dict[TaskId, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def batches(self) -> AsyncIterator[list[Item]]:
        """Lists of lines; an empty list is a heartbeat. Ends with `[{end: true}]`."""
        director = asyncio.create_task(self._direct())
        try:
            while True:
                take = asyncio.create_task(self._batches.get())
                await asyncio.wait({take, director}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if take.done():
                    yield take.result()
                    continue
                take.cancel()
                if director.done():
                    director.result()
                    while not self._batches.empty():
                        yield self._batches.get_nowait()
                    yield [{"end": True, "status": self._group["status"]}]
                    return
                yield []
        finally:
            director.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await director

    async def _direct(self) -> None:
        """Starts a reader for each rank as its attempt appears; returns when there is nothing more to come."""
        watch = asyncio.create_task(self._watch()) if self._follow else None
        try:
            while True:
                self._changed.clear()
                self._start_readers()
                if self._complete():
                    return
                await self._changed.wait()
        finally:
            stopping = [*self._readers.values(), *([watch] if watch is not None else [])]
            for task in stopping:
                task.cancel()
            await asyncio.gather(*stopping, return_exceptions=True)

    def _start_readers(self) -> None:
        for key, row in sorted(self._tasks.items()):
            wanted = key.attempt == self._only_attempt if self._only_attempt else key.attempt >= self._first
            # A rank cancelled before its start order has no log and never will.
            if not wanted or key in self._readers or row["status"] == "cancelled":
                continue
            if self._only_rank is None or key.rank == self._only_rank:
                reader = asyncio.create_task(self._read(key, str(row["node"])))
                reader.add_done_callback(lambda _: self._changed.set())
                self._readers[key] = reader

    def _complete(self) -> bool:
        """Readers of an attempt that was replaced may wait for a dead host: they do not hold the end back for ever,
        they give up by themselves."""
        if not all(reader.done() for reader in self._readers.values()):
            return False
        if not self._follow or self._group["status"] in TERMINAL:
            return True
        return self._only_attempt is not None and self._group["attempt"] > self._only_attempt

    async def _read(self, key: TaskId, node: str) -> None:
        resumed = self._places.get((key.attempt, key.rank))
        first = key.attempt == self._first
        place = Place(offset=resumed) if resumed is not None else self._place if first else Place()

        def gone() -> bool:
            row = self._tasks.get(key)
            return row is None or row["status"] in GONE

        marks = {"rank": key.rank, "attempt": key.attempt}
        read = self._service.anywhere(key, node, self._address, place, self._follow, gone, self._on_behalf)
        async for batch in read:
            shown = [marks | item for item in batch if not item.get("end")]
            if shown:
                await self._batches.put(shown)

    async def _address(self, node: str) -> str | None:
        found = await self._mesh.query([{"get": ["node", node]}], level="stale")
        (row,) = found["results"]
        return str(row["api_addr"]) if row is not None else None

    async def _watch(self) -> None:
        token: str | None = None
        while True:
            with contextlib.suppress(HeteroFlowError):
                async for frame in lively(self._mesh.subscribe({"group": self._group["group_id"]}, token)):
                    for entity, key, row in [*frame.get("snapshot", ()), *frame.get("changes", ())]:
                        self._take(entity, key, row)
                    token = frame.get("token", token)
                    self._changed.set()
            await asyncio.sleep(_RESUBSCRIBE_S)

    def _take(self, entity: str, key: str, row: Row | None) -> None:
        if entity == "group":
            self._group = row if row is not None else self._group | {"status": "stopped"}
        elif entity == "task":
            group_id, attempt, rank = key.split("/")
            task_id = TaskId(group_id, int(attempt), int(rank))
            if row is not None:
                self._tasks[task_id] = row


def tasks_by_id(rows: list[tuple[str, Any]]) -> dict[TaskId, Row]:
    return {TaskId(str(row["group_id"]), int(row["attempt"]), int(row["rank"])): row for _, row in rows}
