"""The state machine's shell: committed entries go to the state thread in batches, results come back to the loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from mesh.core.raft.entry import Entry
from mesh.store.errors import DiskFull
from mesh.store.state_db import AppliedBatch, StateDb
from mesh.store.worker import Worker

BACKLOG_BYTES = 16 * 1024 * 1024
BATCH_ENTRIES = 1_024
INLINE_ENTRIES = 1
INLINE_BYTES = 16 * 1024
"""A lone small command is applied on the loop: that takes 0.2 ms without an fsync, and the way to the thread and back
is a tenth of a lone commit's latency. Everything else, and all upkeep, is the thread's."""
CHORES_BYTES = 2 * 1024 * 1024
CHORES_INDEXES = 512
"""The WAL is copied back and the feed pruned after about so many bytes or indexes."""
RETRY_S = 1.0
SAMPLES_KEPT = 64

_logger = logging.getLogger("heteroflow.voter")


class Machine:
    """on_batch runs on the loop after each transaction; on_full says whether the disk is full; on_fatal ends it all."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        state: StateDb,
        on_batch: Callable[[AppliedBatch], None],
        on_full: Callable[[bool], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.index, self.term, self.stamp_ms = state.index, state.term, state.stamp_ms
        self.state_hash = state.state_hash
        self.samples: deque[tuple[int, str]] = deque(maxlen=SAMPLES_KEPT)
        self._loop, self._worker, self._state = loop, worker, state
        self._on_batch, self._on_full, self._on_fatal = on_batch, on_full, on_fatal
        self._backlog: deque[Entry] = deque()
        self._backlog_bytes = 0
        self._busy = False
        self._full = False
        self._since_chores = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()

    def feed(self, entries: list[Entry]) -> None:
        """Committed entries, in order."""
        self._backlog.extend(entries)
        self._backlog_bytes += sum([len(e.data) for e in entries])
        if not self._busy:
            self._start(here=True)

    @property
    def cluster_version(self) -> int:
        return self._state.cluster_version

    @property
    def behind(self) -> bool:
        """Too much waits to be applied; taking more would only fill the memory."""
        return self._backlog_bytes > BACKLOG_BYTES

    def _start(self, here: bool) -> None:
        """here: whether a lone small command may be applied at once, so that its results come before this returns."""
        backlog = self._backlog
        batch = [backlog.popleft() for _ in range(min(len(backlog), BATCH_ENTRIES))]
        if not batch:
            return
        self._busy = True
        if here and len(batch) <= INLINE_ENTRIES and len(batch[0].data) <= INLINE_BYTES:
            self._apply_here(batch)
        else:
            self._submit(batch)

    def _apply_here(self, batch: list[Entry]) -> None:
        try:
            result = self._state.apply(batch)
        except Exception as error:
            self._applied(batch, None, error)
        else:
            self._applied(batch, result, None)

    def _submit(self, batch: list[Entry]) -> None:
        def done(result: Any, error: BaseException | None) -> None:
            self._applied(batch, result, error)

        self._worker.submit(lambda: self._state.apply(batch), done)

    def _applied(self, batch: list[Entry], result: AppliedBatch | None, error: BaseException | None) -> None:
        if isinstance(error, DiskFull):
            if not self._full:
                _logger.error("%s", error)
                self._full = True
                self._on_full(True)
            self._loop.call_later(RETRY_S, self._submit, batch)
            return
        if error is not None or result is None:
            self._on_fatal(error or RuntimeError("apply gave no result"))
            return
        if self._full:
            self._full = False
            self._on_full(False)
        self._busy = False
        size = sum([len(e.data) for e in batch])
        self._backlog_bytes -= size
        self._since_chores += size + CHORES_BYTES // CHORES_INDEXES * len(batch)
        self.index, self.term, self.stamp_ms, self.state_hash = (
            result.index,
            result.term,
            result.stamp_ms,
            result.state_hash,
        )
        self.samples.extend(result.samples)
        if self._backlog:
            # Never here: the results of this batch are told below, and those of the next must come after them.
            self._start(here=False)
        try:
            self._on_batch(result)
        except Exception as failure:
            self._on_fatal(failure)
            return
        self._wake()
        if not self._busy and self._since_chores >= CHORES_BYTES:
            self._do_chores()

    def _do_chores(self) -> None:
        self._busy, self._since_chores = True, 0

        def done(_: Any, error: BaseException | None) -> None:
            if error is not None:
                self._on_fatal(error)
                return
            self._busy = False
            self._start(here=True)

        self._worker.submit(self._state.tidy, done)

    def _wake(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.index:
            _, _, future = heapq.heappop(waiting)
            if not future.done():
                future.set_result(None)

    async def reached(self, index: int, timeout_s: float | None = None) -> bool:
        """Wait until `index` is applied. False when it did not come in time."""
        if index <= self.index:
            return True
        future: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._waiting, (index, next(self._order), future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        return True
