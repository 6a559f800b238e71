"""A change feed told no more often than its watcher looks: of a row that changed ten times meanwhile only the last
state is."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

GATHERED_ROWS = 10_000  # more are not read ahead: the feed's own bound for slow watchers holds then
Frame = dict[str, Any]


async def paced(frames: AsyncIterator[Frame], every_s: float) -> AsyncGenerator[Frame, None]:
    """What comes after `every_s` of silence is told at once, then what came within the next `every_s` together.
    Snapshots pass as they are."""
    gathered = _Gathered()
    arrived, taken = asyncio.Event(), asyncio.Event()

    async def gather() -> None:
        try:
            async for frame in frames:
                while not gathered.takes(frame):
                    taken.clear()
                    await taken.wait()
                gathered.add(frame)
                arrived.set()
        finally:
            arrived.set()

    gathering = asyncio.create_task(gather())
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            over = gathering.done()
            frame = gathered.take()
            taken.set()
            if frame is not None:
                yield frame
                if "snapshot" not in frame:
                    await asyncio.sleep(every_s)
            if over:
                gathering.result()
                return
    finally:
        gathering.cancel()
        await asyncio.gather(gathering, return_exceptions=True)
        if (close := getattr(frames, "aclose", None)) is not None:
            await close()


class _Gathered:
    """One piece of a snapshot, or changes of any number of frames in the order of the last change of each row."""

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._rows: dict[tuple[str, str], Any] = {}

    def takes(self, frame: Frame) -> bool:
        if self._frame is None:
            return True
        return "snapshot" not in self._frame and "snapshot" not in frame and len(self._rows) < GATHERED_ROWS

    def add(self, frame: Frame) -> None:
        self._frame = frame
        for entity, key, row in frame.get("changes", ()):
            self._rows.pop((entity, key), None)
            self._rows[entity, key] = row

    def take(self) -> Frame | None:
        frame, rows = self._frame, self._rows
        self._frame, self._rows = None, {}
        if frame is None or "snapshot" in frame:
            return frame
        return frame | {"changes": [[entity, key, row] for (entity, key), row in rows.items()]}
