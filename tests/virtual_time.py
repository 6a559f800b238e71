"""An event loop whose clock stands while anything runs and jumps to the next timer when nothing does.

For tests of what depends on durations and touches no socket, process or thread: they take no time, and a busy machine
changes nothing about their order.
"""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class _Jump(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing will ever happen again: the test waits for what virtual time cannot bring")
        self.now_s += max(timeout, 0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s


def now_ns() -> int:
    """Of the running loop; in place of a clock of the system."""
    return round(asyncio.get_running_loop().time() * 1e9)


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **more: Any) -> None:
        async def whole() -> None:
            await test(*args, **more)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(whole())

    return run
