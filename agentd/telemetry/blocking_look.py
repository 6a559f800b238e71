"""A look at something that may hang (a share, a driver), taken again and again: while one hangs no second is begun."""

import threading
from collections.abc import Callable
from typing import TypeVar

from agentd.deadline_thread import within

T = TypeVar("T")


class StillLooking(Exception):
    """The look before has not come back."""


class BlockingLook:
    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()

    @property
    def hangs(self) -> bool:
        return not self._free.is_set()

    async def take(self, deadline_s: float, look: Callable[[], T]) -> T:
        """Raises TimeoutError, StillLooking, and whatever `look` raises."""
        if self.hangs:
            raise StillLooking
        self._free.clear()

        def run() -> T:
            try:
                return look()
            finally:
                self._free.set()

        try:
            return await within(deadline_s, run, "look")
        except RuntimeError:  # no thread could be started; one of the look's own has set it before
            self._free.set()
            raise
