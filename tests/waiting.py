"""Waiting, with an end, for what comes about by itself: `until` in plain tests, `eventually` in those of an event loop.

Both give the first answer of `look` that is true. What is not there yet may also raise one of NOT_YET. They give up
after `within_s` with AssertionError, which says what was waited for and what the last look was answered; `what` may be
a function where the state that explains a failure is elsewhere, and is then called at the end only. A look that
asserts says with its message what it saw.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

# For a machine that does much else; a test that waits in vain for this long fails anyway.
WITHIN_S = 60.0
NOT_YET = (AssertionError, OSError, aiohttp.ClientError)

What = str | Callable[[], str]


def until(what: What, look: Callable[[], Any], within_s: float = WITHIN_S, every_s: float = 0.02) -> Any:
    deadline = time.monotonic() + within_s
    while True:
        try:
            if seen := look():
                return seen
        except NOT_YET as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(given_up(what, within_s, seen))
        time.sleep(every_s)


async def eventually(
    what: What, look: Callable[[], Any | Awaitable[Any]], within_s: float = WITHIN_S, every_s: float = 0.02
) -> Any:
    """`look` may be a coroutine function."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            seen = look()
            if asyncio.iscoroutine(seen):
                seen = await seen
            if seen:
                return seen
        except NOT_YET as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(given_up(what, within_s, seen))
        await asyncio.sleep(every_s)


def given_up(what: What, within_s: float, seen: Any) -> str:
    said = what if isinstance(what, str) else what()
    # That it was not true is known.
    return f"not within {within_s:g} s: {said}" + ("" if seen in (None, False) else f"; the last look: {seen!r}")
