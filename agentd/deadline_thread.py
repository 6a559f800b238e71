"""Blocking work in a thread, with a deadline. The thread of a hung share or engine cannot be ended, so it is a daemon
and simply left behind; the pool of asyncio would wait for it at exit."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def for_thread(
    work: Callable[[], T], ended: Callable[[], None] = lambda: None
) -> tuple[Callable[[], None], "asyncio.Future[T]"]:
    """What a thread is to run, and its answer in this loop. ended: is called in the loop when the work is over, though
    nobody may wait for it any more."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(tell: Callable[[], None]) -> None:
        ended()
        if not answer.done():
            tell()

    def run() -> None:
        tell: Callable[[], None]
        try:
            tell = partial(answer.set_result, work())
        except BaseException as raised:
            tell = partial(answer.set_exception, raised)
        with contextlib.suppress(RuntimeError):  # the loop closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, tell)

    return run, answer


async def within(deadline_s: float, work: Callable[[], T], name: str, ended: Callable[[], None] = lambda: None) -> T:
    """In a thread of its own called `name`. Raises TimeoutError after `deadline_s`, and whatever `work` raises."""
    run, answer = for_thread(work, ended)
    threading.Thread(target=run, name=name, daemon=True).start()
    async with asyncio.timeout(deadline_s):
        return await answer
