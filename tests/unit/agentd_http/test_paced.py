"""A paced feed: nothing but the last state of each row, in order, no more often than wanted, and with a bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from agentd import paced as paced_module
from agentd.paced import paced
from schemas.errors import Unavailable

Frame = dict[str, Any]


class Feed:
    """Frames as a test puts them; what it was asked for is known."""

    def __init__(self, *frames: Frame) -> None:
        self.frames: asyncio.Queue[Frame | Exception | None] = asyncio.Queue()
        for frame in frames:
            self.put(frame)
        self.taken, self.closed = 0, False

    def put(self, frame: Frame | Exception | None) -> None:
        self.frames.put_nowait(frame)

    async def __aiter__(self) -> AsyncIterator[Frame]:
        try:
            while (frame := await self.frames.get()) is not None:
                if isinstance(frame, Exception):
                    raise frame
                self.taken += 1
                yield frame
        finally:
            self.closed = True


def change(index: int, *rows: tuple[str, int | None]) -> Frame:
    return {"idx": index, "token": f"c.1.{index}", "changes": [["group", key, row] for key, row in rows]}


async def test_changes_while_the_watcher_looks_away_come_together() -> None:
    feed = Feed(change(1, ("a", 1)))
    async with asyncio.timeout(20), aclosing(paced(aiter(feed), 0.1)) as frames:
        assert await anext(frames) == change(1, ("a", 1))
        for frame in (change(2, ("a", 2), ("b", 2)), change(3, ("c", 3)), change(4, ("b", None)), change(5, ("a", 5))):
            feed.put(frame)
        assert await anext(frames) == change(5, ("c", 3), ("b", None), ("a", 5))


async def test_a_snapshot_keeps_its_place_and_its_pieces() -> None:
    pieces = [{"snapshot": [["group", "a", at]], "token": "c.1.9", "more": at < 2} for at in range(3)]
    feed = Feed(change(1, ("a", 1)), *pieces, change(10, ("a", 10)), change(11, ("a", 11)))
    feed.put(None)
    async with asyncio.timeout(20):
        seen = [frame async for frame in paced(aiter(feed), 0.01)]
    assert seen[:4] == [change(1, ("a", 1)), *pieces]
    assert seen[-1] == change(11, ("a", 11)) and feed.closed


async def test_what_came_before_the_end_is_told_before_it() -> None:
    feed = Feed(change(1, ("a", 1)))
    feed.put(Unavailable("slow_consumer", "too slow", ""))
    seen: list[Frame] = []
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match="too slow"):
            async for frame in paced(aiter(feed), 0.01):
                seen.append(frame)
    assert seen == [change(1, ("a", 1))] and feed.closed


async def test_a_watcher_that_does_not_read_is_read_ahead_for_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced_module, "GATHERED_ROWS", 10)
    feed = Feed(*(change(at, (f"g{at}", at)) for at in range(1, 101)))
    feed.put(None)
    async with asyncio.timeout(20), aclosing(paced(aiter(feed), 0.0)) as frames:
        first = await anext(frames)
        for _ in range(50):
            await asyncio.sleep(0)
        assert feed.taken <= len(first["changes"]) + 12
        rows = [row for frame in [first, *[frame async for frame in frames]] for row in frame["changes"]]
    assert rows == [["group", f"g{at}", at] for at in range(1, 101)]


async def test_the_feed_ends_with_its_watcher() -> None:
    feed = Feed(change(1, ("a", 1)))
    async with asyncio.timeout(20):
        async with aclosing(paced(aiter(feed), 0.01)) as frames:
            await anext(frames)
        assert feed.closed
