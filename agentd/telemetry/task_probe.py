"""What can be seen of this host's tasks from outside: processes, logs, cards. Blocking calls never on the loop, and
none can hold up another."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentd.core.quiet import Quiet, QuietWatch
from agentd.core.rendezvous import RendezvousNow
from agentd.core.stall import IDLE_CARD_PERCENT
from agentd.core.telemetry_blob import CardNow
from agentd.gpu.base import GpuAdapter
from agentd.runtime.base import Observed, TaskId
from agentd.telemetry.blocking_look import BlockingLook, StillLooking
from agentd.telemetry.process_use import ProcessUse, Use
from agentd.telemetry.rendezvous_probe import RendezvousProbe, Wanted

log = logging.getLogger(__name__)
_DEADLINE_S = 5.0
# Below this a process keeps a connection alive; above it it works on something.
IO_BYTES_S = 64 * 1024
BUSY_CPU_PERCENT = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one task. cards: by uuid, as `card_quiets`."""

    cpu_percent: float | None
    log: Quiet | None
    files: Quiet | None
    processor: Quiet | None
    cards: Mapping[str, Quiet | None]
    rendezvous: RendezvousNow | None = None


@dataclass(slots=True)
class _Watches:
    files: QuietWatch
    processor: QuietWatch
    cards: dict[str, QuietWatch] = field(default_factory=dict)


class TaskProbe:
    """log_dir: as the runtime's. processes: whether pids of the runtime are those of this host."""

    def __init__(self, cards: GpuAdapter, log_dir: Callable[[TaskId], str], processes: bool, every_s: float) -> None:
        self._cards, self._log_dir, self._processes = cards, log_dir, processes
        self._gap_s = max(15.0, 5 * every_s)
        self._use = ProcessUse(table_every_s=5 * every_s)
        self._meeting = RendezvousProbe(log_dir)
        self._use_look, self._card_look, self._meeting_look = BlockingLook(), BlockingLook(), BlockingLook()
        self._watches: dict[TaskId, _Watches] = {}
        self.cards: tuple[CardNow, ...] = ()

    async def look(self, tasks: Sequence[Observed], meeting: Mapping[TaskId, Wanted] = {}) -> dict[TaskId, Seen]:
        """tasks: those that run. meeting: those of several nodes, and where they meet."""
        now = time.monotonic()
        uses, log_ages = await self._look_at_processes(tasks, now)
        meetings = await self._look_at_meetings(meeting, now)
        cpu: dict[str, float | None] = {}
        for task in tasks:
            use = uses.get(task.id)
            for uuid in task.gpus:
                cpu[uuid] = None if use is None else use.cpu_percent / len(task.gpus)
        self.cards = await self._look_at_cards(cpu)
        by_uuid = {card.uuid: card for card in self.cards}
        self._watches = {
            task.id: self._watches.get(task.id) or _Watches(QuietWatch(self._gap_s), QuietWatch(self._gap_s))
            for task in tasks
        }
        found = {}
        for task in tasks:
            # A log that was never written is as old as its task; one that could not be looked at is no silent one.
            log_age_s = None if log_ages is None else log_ages.get(task.id, running_s(task))
            seen = self._seen(task, uses.get(task.id), log_age_s, by_uuid, now)
            found[task.id] = replace(seen, rendezvous=meetings.get(task.id))
        return found

    def _seen(
        self, task: Observed, use: Use | None, log_age_s: float | None, cards: Mapping[str, CardNow], now: float
    ) -> Seen:
        watches = self._watches[task.id]
        io_moves = None if use is None or use.io_bytes_s is None else use.io_bytes_s >= IO_BYTES_S
        watches.files.note(now, io_moves)
        watches.processor.note(now, None if use is None else use.cpu_percent >= BUSY_CPU_PERCENT)
        quiets: dict[str, Quiet | None] = {}
        for uuid in task.gpus:
            card = cards.get(uuid)
            util = None if card is None else card.util
            watch = watches.cards.setdefault(uuid, QuietWatch(self._gap_s))
            watch.note(now, None if util is None else util >= IDLE_CARD_PERCENT)
            quiets[uuid] = watch.quiet(now)
        return Seen(
            cpu_percent=None if use is None else use.cpu_percent,
            log=None if log_age_s is None else Quiet(log_age_s, True),
            files=watches.files.quiet(now),
            processor=watches.processor.quiet(now),
            cards=quiets,
        )

    async def _look_at_processes(
        self, tasks: Sequence[Observed], now: float
    ) -> tuple[dict[object, Use], dict[TaskId, float] | None]:
        roots: dict[object, int] = {task.id: task.pid for task in tasks if task.pid is not None and self._processes}
        directories = {task.id: self._log_dir(task.id) for task in tasks}

        def look() -> tuple[dict[object, Use], dict[TaskId, float]]:
            ages = {key: age_s for key, path in directories.items() if (age_s := _log_age_s(path)) is not None}
            return self._use.look(roots, now), ages

        if not tasks:
            return {}, {}
        try:
            return await self._use_look.take(_DEADLINE_S, look)
        except (TimeoutError, StillLooking):
            return {}, None

    async def _look_at_meetings(self, wanted: Mapping[TaskId, Wanted], now: float) -> dict[TaskId, RendezvousNow]:
        """A host name among them may take its time to be resolved."""
        if not wanted or not self._processes:
            return {}
        try:
            return await self._meeting_look.take(_DEADLINE_S, lambda: self._meeting.look(wanted, now))
        except (TimeoutError, StillLooking):
            return {}

    async def _look_at_cards(self, cpu: Mapping[str, float | None]) -> tuple[CardNow, ...]:
        try:
            return tuple(await self._card_look.take(_DEADLINE_S, lambda: self._cards.sample(cpu)))
        except (TimeoutError, StillLooking):
            return tuple(CardNow(card.uuid) for card in self.cards)


def running_s(task: Observed) -> float:
    return 0.0 if task.started_ms is None else max(time.time() - task.started_ms / 1000.0, 0.0)


def _log_age_s(directory: str) -> float | None:
    try:
        newest = max((name for name in os.listdir(directory) if name.endswith(".log")), default=None)
        if newest is None:
            return None
        return max(time.time() - os.stat(os.path.join(directory, newest)).st_mtime, 0.0)
    except OSError:
        return None
