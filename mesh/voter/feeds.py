"""Subscriptions: a snapshot or the rest of the feed from a token on, then every frame as it is applied."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import msgpack

from mesh.store.feed import Change, FeedFilter, FeedFrame, Token
from mesh.store.state_reader import SnapshotChunk, StateReader, open_reader
from mesh.store.worker import Worker
from mesh.transport.carrier import Carrier
from mesh.transport.codec import pack
from mesh.voter.machine import Machine
from schemas.errors import Problem

LAG_WAIT_S = 2.0
PROGRESS_S = 5.0
LIVE_FRAMES_MAX = 1_024
LIVE_ROWS_MAX = 65_536
CATCH_UP_ROWS = 512
SNAPSHOT_FRAME_BYTES = 256 * 1024

T = TypeVar("T")

_logger = logging.getLogger("heteroflow.feed")


class SubscriptionEnded(Exception):
    """Raised inside a subscription with the problem its client is told."""

    def __init__(self, code: str, message: str, hint: str, status: int = 503) -> None:
        super().__init__(message)
        self.problem = Problem(code, message, hint, status=status)


class Subscription:
    def __init__(self, hub: FeedHub, carrier: Carrier, stream: int, feed_filter: FeedFilter) -> None:
        self.filter = feed_filter
        self._hub, self._carrier, self._stream = hub, carrier, stream
        self._live: deque[FeedFrame] = deque()
        self._live_rows = 0
        self._overflown = False
        self._wake = asyncio.Event()
        self._position = 0

    async def run(self, token: Token | None) -> None:
        """Serve until cancelled. Raises SubscriptionEnded, or ConnectionError when the client is gone."""
        hub = self._hub
        if token is not None:
            await self._resume(token)
        else:
            await self._snapshot(compacted=False)
        while self._position < hub.machine.index:
            await self._catch_up()
        # No await between the comparison above and this: no frame can fall between.
        hub.live.add(self)
        try:
            await self._follow()
        finally:
            hub.live.discard(self)

    async def _resume(self, token: Token) -> None:
        hub = self._hub
        if (token.cluster_id, token.epoch) != (hub.cluster_id, hub.epoch):
            await self._snapshot(compacted=True)
            return
        if not await hub.machine.reached(token.index, LAG_WAIT_S):
            raise SubscriptionEnded(
                "lagging",
                f"this voter has applied {hub.machine.index}, the token is at {token.index}; it would go back in time.",
                "Resume on another voter.",
            )
        self._position = token.index

    async def _snapshot(self, compacted: bool) -> None:
        async for chunk in self._hub.snapshot(self.filter):
            frame: dict[str, Any] = {
                "snapshot": [[entity, key, msgpack.unpackb(row)] for entity, key, row in chunk.rows],
                "token": self._hub.token(chunk.index),
                "more": chunk.more,
            }
            if compacted:
                frame["compacted"] = True
            await self._send(frame)
            self._position = chunk.index

    async def _catch_up(self) -> None:
        position = self._position
        found = await self._hub.reader_call(lambda reader: reader.changes_after(position, CATCH_UP_ROWS))
        if found is None:
            await self._snapshot(compacted=True)
            return
        upto, frames = found
        for frame in frames:
            await self._pass_on(frame)
        self._position = max(self._position, upto)

    async def _follow(self) -> None:
        while True:
            while self._live:
                frame = self._live.popleft()
                self._live_rows -= len(frame.changes)
                if frame.index > self._position:
                    await self._pass_on(frame)
            if self._overflown:
                raise SubscriptionEnded(
                    "slow_consumer",
                    "the subscriber does not read as fast as the state changes, so its buffer is full.",
                    "Resume with the last token.",
                )
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROGRESS_S):
                    await self._wake.wait()
            if not self._live and not self._overflown:
                await self._progress()

    async def _progress(self) -> None:
        """Nothing for this subscriber: its token moves on all the same, or it would be too old one day."""
        self._position = max(self._position, self._hub.machine.index)
        await self._send({"idx": self._position, "changes": [], "token": self._hub.token(self._position)})

    async def _pass_on(self, frame: FeedFrame) -> None:
        wanted = self.filter.select(frame)
        self._position = frame.index
        if wanted:
            await self._send(
                {
                    "idx": frame.index,
                    "changes": [_wire(change) for change in wanted],
                    "token": self._hub.token(frame.index),
                }
            )

    async def _send(self, frame: dict[str, Any]) -> None:
        self._carrier.send(pack([self._stream, "item", frame]))
        await self._carrier.drained()

    def publish(self, frame: FeedFrame) -> None:
        if len(self._live) >= LIVE_FRAMES_MAX or self._live_rows >= LIVE_ROWS_MAX:
            self._overflown = True
            self._hub.live.discard(self)
        else:
            self._live.append(frame)
            self._live_rows += len(frame.changes)
        self._wake.set()


def _wire(change: Change) -> list[Any]:
    return [change.entity, change.key, msgpack.unpackb(change.row) if change.row is not None else None]


class FeedHub:
    """All live subscriptions of this voter."""

    def __init__(
        self, cluster_id: str, epoch: int, machine: Machine, worker: Worker, path: Path, reader: StateReader
    ) -> None:
        self.cluster_id, self.epoch, self.machine = cluster_id, epoch, machine
        self.live: set[Subscription] = set()
        self._worker, self._path, self._reader = worker, path, reader

    def token(self, index: int) -> str:
        return str(Token(self.cluster_id, self.epoch, index))

    async def reader_call(self, job: Callable[[StateReader], T]) -> T:
        reader = self._reader
        return await self._worker.call(lambda: job(reader))

    async def snapshot(self, feed_filter: FeedFilter) -> AsyncIterator[SnapshotChunk]:
        """On a connection of its own, since its transaction lasts as long as the subscriber takes."""
        reader = await self._worker.call(lambda: open_reader(self._path))
        chunks = reader.snapshot(feed_filter, SNAPSHOT_FRAME_BYTES)
        try:
            while (chunk := await self._worker.call(lambda: next(chunks, None))) is not None:
                yield chunk
        finally:
            # After whatever is under way there; also when the subscriber went in the middle.
            self._worker.submit(lambda: _end(chunks, reader))

    def publish(self, frames: list[FeedFrame]) -> None:
        for frame in frames:
            for subscription in tuple(self.live):
                if subscription.filter.select(frame):
                    subscription.publish(frame)


def _end(chunks: Generator[SnapshotChunk, None, None], reader: StateReader) -> None:
    chunks.close()
    reader.close()
