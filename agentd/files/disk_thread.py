"""One thread for the file calls of one transfer, in their order. A share that hangs keeps the thread, not the agent: it
is a daemon, and what it had open it closes by itself if it ever comes back, so that no descriptor changes hands under
a call that is still under way."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

from agentd.deadline_thread import for_thread
from schemas.errors import Unavailable

T = TypeVar("T")
CALL_S = 60.0


class DiskThread:
    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closers: list[Callable[[], Any]] = []
        threading.Thread(target=self._run, name="files", daemon=True).start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.put(None)

    def at_end(self, close: Callable[[], Any]) -> None:
        """What is done last, in reverse order."""
        self._closers.append(close)

    async def call(self, work: Callable[[], T], deadline_s: float = CALL_S) -> T:
        """Raises what `work` raises, and Unavailable when it is late; it may happen all the same then."""
        run, answer = for_thread(work)
        self._calls.put(run)
        try:
            async with asyncio.timeout(deadline_s):
                return await answer
        except TimeoutError as late:
            raise Unavailable(
                "disk_silent",
                f"the disk or share of this host did not answer within {deadline_s:.0f} s",
                "look at the share on that host; `heteroflow-agentd doctor` does",
            ) from late

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        for close in reversed(self._closers):
            with contextlib.suppress(OSError):
                close()
