"""MemoryMesh: a whole mesh of one voter inside the process, with VoterClient's surface, for tests of what stands on it.

The reducers, the state store, the queries and the feed are the voter's own; only log, disk, peers and sockets are
missing. Any number of users may share one object, as agents share a mesh.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgpack

from mesh.client import Leader
from mesh.core.lease.grantor import Grantor
from mesh.core.raft.entry import Entry, EntryKind
from mesh.core.state.reducer import apply
from mesh.store.feed import Change, FeedFilter, Token
from mesh.store.row_codec import decode_row
from mesh.store.state_db import memory_state
from mesh.store.state_reader import QueryRefused, StateReader
from mesh.voter.feeds import PROGRESS_S, SNAPSHOT_FRAME_BYTES
from mesh.voter.leases import take
from schemas.commands import encode_command
from schemas.errors import Conflict, InvalidInput, Unavailable
from schemas.limits import PROFILES
from schemas.versions import version_refusal

RAFT_ID = 1
CATCH_UP_ROWS = 256


class MemoryMesh:
    """clock_ms stamps commands; boottime_ns counts leases."""

    def __init__(
        self,
        node: str = "node-1",
        cluster_id: str = "memory",
        profile: str = "fast",
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        boottime_ns: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    ) -> None:
        self._cluster_id, self._clock_ms, self._boottime_ns = cluster_id, clock_ms, boottime_ns
        self._state, connection = memory_state(cluster_id, apply)
        self._reader = StateReader(connection)
        self._leader = Leader(RAFT_ID, node, 1, True, 0)
        self._grantor = Grantor(PROFILES[profile], boottime_ns())
        self._applied = asyncio.Event()
        self._leader_changed = asyncio.Event()
        self.hello = {
            "cluster_id": cluster_id,
            "epoch": 1,
            "raft_id": RAFT_ID,
            "node": node,
            "profile": profile,
            "versions": [1],
        }

    @property
    def leader(self) -> Leader | None:
        return self._leader

    async def connect(self, timeout_s: float = 10.0) -> None:
        """There is nothing to wait for."""

    async def leader_change(self) -> Leader | None:
        await self._leader_changed.wait()
        return self._leader

    def elect(self, node: str) -> None:
        """Move the lead to another node, in a new term."""
        self._leader = Leader(RAFT_ID, node, self._leader.term + 1, True, self._state.index)
        changed, self._leader_changed = self._leader_changed, asyncio.Event()
        changed.set()

    async def propose(
        self, command: dict[str, Any], timeout_s: float = 10.0, term: int | None = None
    ) -> dict[str, Any]:
        encode_command(command)
        if (refusal := version_refusal(command, self._state.cluster_version)) is not None:
            raise Conflict(refusal.code, refusal.message, refusal.hint)
        if term is not None and term != self._leader.term:
            raise Conflict(
                "planned_in_old_term",
                f"the command was planned in term {term}, the leader is in term {self._leader.term}; not proposed.",
                "Plan again on the present state.",
            )
        stamped = {**copy.deepcopy(command), "at_ms": max(self._clock_ms(), self._state.stamp_ms)}
        entry = Entry(self._state.index + 1, self._leader.term, EntryKind.NORMAL, msgpack.packb(stamped))
        batch = self._state.apply([entry])
        for frame in batch.frames:
            self._observe(frame.changes)
        applied, self._applied = self._applied, asyncio.Event()
        applied.set()
        await asyncio.sleep(0)
        ((index, _, outcome),) = batch.outcomes
        return {"idx": index, **outcome.to_dict()}

    def _observe(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if change.entity in ("node", "meta"):
                row = decode_row(change.row) if change.row is not None else None
                take(self._grantor, change.entity, change.key, row, self._boottime_ns())

    async def query(
        self,
        reads: Sequence[dict[str, Any]],
        level: str = "linearizable",
        min_idx: int | None = None,
        timeout_s: float = 10.0,
    ) -> dict[str, Any]:
        if level not in ("linearizable", "stale"):
            raise InvalidInput("invalid_query", f"level is linearizable or stale, not {level!r:.40}")
        if min_idx is not None and min_idx > self._state.index:
            raise Unavailable("lagging", f"this voter has applied {self._state.index}, {min_idx} was asked for.")
        try:
            index, results = self._reader.query(list(reads))
        except QueryRefused as refusal:
            raise InvalidInput(refusal.code, str(refusal)) from refusal
        except UnicodeEncodeError as error:
            raise InvalidInput("invalid_query", "a query holds half of a surrogate pair, which is no text") from error
        return {"idx": index, "age_ms": 0, "results": results}

    async def subscribe(self, feed_filter: dict[str, Any], token: str | None = None) -> AsyncIterator[dict[str, Any]]:
        try:
            wanted = FeedFilter.parse(feed_filter)
            start = Token.parse(token) if token is not None else None
        except ValueError as error:
            raise InvalidInput("invalid_subscription", str(error)) from error
        if start is not None and (start.cluster_id, start.epoch) == (self._cluster_id, 1):
            position = start.index
        else:
            position, pieces = self._snapshot(wanted, compacted=start is not None)
            for piece in pieces:
                yield piece
        while True:
            applied = self._applied
            found = self._reader.changes_after(position, CATCH_UP_ROWS)
            if found is None:
                position, pieces = self._snapshot(wanted, compacted=True)
                for piece in pieces:
                    yield piece
                continue
            upto, frames = found
            for change_frame in frames:
                changes = wanted.select(change_frame)
                if changes:
                    yield {
                        "idx": change_frame.index,
                        "changes": [
                            [c.entity, c.key, decode_row(c.row) if c.row is not None else None] for c in changes
                        ],
                        "token": self._token(change_frame.index),
                    }
            position = max(position, upto)
            if position >= self._state.index:
                try:
                    # Not wait_for, which before 3.12 loses a cancellation that comes together with the event.
                    async with asyncio.timeout(PROGRESS_S):
                        await applied.wait()
                except TimeoutError:
                    yield {"idx": position, "changes": [], "token": self._token(position)}

    def _snapshot(self, wanted: FeedFilter, compacted: bool) -> tuple[int, list[dict[str, Any]]]:
        """Read whole before the first piece leaves: a transaction held meanwhile would stand in the way of writes."""
        chunks = list(self._reader.snapshot(wanted, SNAPSHOT_FRAME_BYTES))
        frames: list[dict[str, Any]] = [
            {
                "snapshot": [[entity, key, decode_row(row)] for entity, key, row in chunk.rows],
                "token": self._token(chunk.index),
                "more": chunk.more,
                **({"compacted": True} if compacted else {}),
            }
            for chunk in chunks
        ]
        return chunks[-1].index, frames

    def _token(self, index: int) -> str:
        return str(Token(self._cluster_id, 1, index))

    async def renew(self, renewal: dict[str, Any], timeout_s: float = 3.0) -> dict[str, Any]:
        return self._grantor.renew(renewal, self._boottime_ns(), True)

    async def beat(self) -> None:
        """Always heard."""

    async def status(self) -> dict[str, Any]:
        index, node = self._state.index, self._leader.node
        return {
            "raft_id": RAFT_ID,
            "role": "leader",
            "leader": RAFT_ID,
            "term": self._leader.term,
            "commit": index,
            "applied": index,
            "last": index,
            "voters": [{"raft_id": RAFT_ID, "node": node, "match": index, "connected": True}],
            "spare": 0,
            "state_hash": self._state.state_hash,
            "alarm": "",
            "disk_full": False,
            "fsync_p99_ms": None,
        }

    async def close(self) -> None:
        """Others may still use it; it ends with the last reference."""
