"""Changes on their way to the one who reconciles: the newest state of each task, none lost, none piled up."""

import asyncio
from collections.abc import AsyncIterator

from agentd.runtime.base import Observed, TaskId


class ChangeFeed:
    def __init__(self) -> None:
        self._waiting: dict[TaskId, Observed] = {}
        self._some = asyncio.Event()

    def push(self, observed: Observed) -> None:
        self._waiting[observed.id] = observed
        self._some.set()

    async def __aiter__(self) -> AsyncIterator[Observed]:
        while True:
            await self._some.wait()
            while self._waiting:
                yield self._waiting.pop(next(iter(self._waiting)))
            self._some.clear()
