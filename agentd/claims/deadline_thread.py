"""A blocking check with a deadline. The thread of a hung share cannot be ended, so it is a daemon and simply left
behind; the pool of asyncio would wait for it at exit."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def within(deadline_s: float, check: Callable[[], T]) -> T:
    """Raises TimeoutError after `deadline_s`, and whatever `check` raises."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = check()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop closed while the share hung: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="claim-check", daemon=True).start()
    async with asyncio.timeout(deadline_s):
        return await answer
