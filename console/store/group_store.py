"""Everything of one group: its row, ranks of every attempt, and its timeline of events."""

import asyncio
import contextlib
from typing import Any

from console.core.sanitize import sanitize_all
from console.store.rows import Event, Group, Task, event_of_row, group_of_row, task_of_row


class GroupStore:
    """`document` is the group's document as it was accepted, not made safe: it is for cloning, never for painting."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group: Group | None = None
        self._row: dict[str, Any] = {}
        self._safe_row: dict[str, Any] | None = {}
        self.document: dict[str, Any] = {}
        self.loaded = False
        self.gone = False
        self._is_loaded = asyncio.Event()
        self._tasks: dict[str, Task] = {}
        self._events: dict[str, Event] = {}
        self._ordered_events: list[Event] | None = None
        self._ordered_tasks: list[Task] | None = None

    def apply(self, frame: dict[str, Any]) -> None:
        for entity, key, row in [*frame.get("snapshot", ()), *frame.get("changes", ())]:
            self._change(entity, key, row)
        if "snapshot" in frame and not frame.get("more"):
            self.loaded = True
            self._is_loaded.set()

    async def wait_loaded(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_loaded.wait()
        return self.loaded

    def _change(self, entity: str, key: str, row: dict[str, Any] | None) -> None:
        if entity == "group" and key == self.group_id:
            self.gone = row is None
            if row is not None:
                self.group = group_of_row(row)
                self.document = row.get("document") or {}
                self._row, self._safe_row = row, None
        elif entity == "task":
            self._ordered_tasks = None
            if row is None:
                self._tasks.pop(key, None)
            else:
                self._tasks[key] = task_of_row(row)
        elif entity == "event":
            self._ordered_events = None
            if row is None:
                self._events.pop(key, None)
            else:
                self._events[key] = event_of_row(row)

    @property
    def row(self) -> dict[str, Any]:
        """The group's row, every text in it safe for a terminal."""
        if self._safe_row is None:
            self._safe_row = sanitize_all(self._row)
        return self._safe_row

    @property
    def events(self) -> list[Event]:
        """Oldest first."""
        if self._ordered_events is None:
            self._ordered_events = [self._events[key] for key in sorted(self._events)]
        return self._ordered_events

    @property
    def tasks(self) -> list[Task]:
        """By attempt and rank."""
        if self._ordered_tasks is None:
            self._ordered_tasks = [self._tasks[key] for key in sorted(self._tasks)]
        return self._ordered_tasks

    @property
    def attempts(self) -> list[int]:
        return sorted({task.attempt for task in self.tasks})

    def ranks(self, attempt: int) -> list[Task]:
        return [task for task in self.tasks if task.attempt == attempt]
