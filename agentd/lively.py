"""A change feed sends something every 5 s though nothing changes. Silence is a voter that hangs: another is asked."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from schemas.errors import Unavailable

SILENCE_S = 15.0
Frame = dict[str, Any]


async def lively(frames: AsyncIterator[Frame], silence_s: float = SILENCE_S) -> AsyncIterator[Frame]:
    """Raises Unavailable(lagging)."""
    try:
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    frame = await anext(frames)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise Unavailable(
                    "lagging", f"the voter sent nothing for {silence_s:.0f} s", "watch again, here or elsewhere"
                ) from error
            yield frame
    finally:
        if (close := getattr(frames, "aclose", None)) is not None:
            await close()
