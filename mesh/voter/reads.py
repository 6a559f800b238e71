"""Linearizable reads: all that wait in one turn share one read-index request."""

from __future__ import annotations

import asyncio
import secrets

from mesh.core.raft.errors import ReadDropped
from mesh.core.raft.rawnode import RawNode
from mesh.core.raft.ready import ReadState

RETRY_AFTER_S = 0.5
GIVE_UP_S = 5.0


class ReadBarrier:
    """`wait` returns an index: a read at or after it is never older than a write acknowledged before the call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node: RawNode) -> None:
        self._loop, self._node = loop, node
        # Contexts must not come again after a restart: a late answer to an old one would serve a new read.
        self._boot = secrets.token_bytes(8)
        self._number = 0
        self._waiting: list[tuple[asyncio.Future[int], float]] = []
        self._asked: dict[bytes, tuple[list[tuple[asyncio.Future[int], float]], float]] = {}

    def ask(self) -> asyncio.Future[int]:
        """The future fails with TimeoutError when no leader confirms in time."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((future, self._loop.time() + GIVE_UP_S))
        return future

    def flush(self) -> None:
        """At the loop's turn: one request for all that wait."""
        if not self._waiting:
            return
        self._number += 1
        context = self._node.raft.id.to_bytes(8, "big") + self._boot + self._number.to_bytes(8, "big")
        try:
            self._node.read_index(context)
        except ReadDropped:
            return
        self._asked[context] = (self._waiting, self._loop.time())
        self._waiting = []

    def served(self, states: list[ReadState], dropped: list[bytes]) -> None:
        for state in states:
            waiting, _ = self._asked.pop(state.context, ([], 0.0))
            for future, _ in waiting:
                if not future.done():
                    future.set_result(state.index)
        for context in dropped:
            self._waiting += self._asked.pop(context, ([], 0.0))[0]

    def tick(self) -> bool:
        """Ask again what was not answered, give up what is too old. True when there is something to flush."""
        now = self._loop.time()
        for context, (waiting, asked_at) in list(self._asked.items()):
            if now - asked_at > RETRY_AFTER_S:
                del self._asked[context]
                self._waiting += waiting
        still = []
        for future, until in self._waiting:
            if future.done():
                continue
            if now > until:
                future.set_exception(TimeoutError("no leader has confirmed the read"))
            else:
                still.append((future, until))
        self._waiting = still
        return bool(still)
