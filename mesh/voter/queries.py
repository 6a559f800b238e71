"""Reads that sessions ask for: of the newest state or of this voter's own, with its age."""

from __future__ import annotations

import asyncio
from typing import Any

from mesh.voter.answers import disk_full, no_leader
from mesh.voter.feeds import FeedHub
from mesh.voter.machine import Machine
from mesh.voter.raft_loop import RaftLoop, boottime_ns
from mesh.voter.reads import ReadBarrier
from schemas.errors import DiskFull, InvalidInput, NoLeader, Unavailable

MIN_IDX_WAIT_S = 2.0
READ_WAIT_S = 5.0


class Queries:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, reads: ReadBarrier, raft: RaftLoop, machine: Machine, feeds: FeedHub
    ) -> None:
        self._loop, self._reads, self._raft, self._machine, self._feeds = loop, reads, raft, machine, feeds
        self._fresh_at: float | None = None

    def fresh(self, at: float) -> None:
        """This state was surely the newest at that loop time."""
        self._fresh_at = at

    async def query(self, level: object, reads: object, min_idx: object) -> dict[str, Any]:
        """Raises HeteroFlowError and QueryRefused."""
        if level not in ("linearizable", "stale"):
            raise InvalidInput("invalid_query", f"level is linearizable or stale, not {level!r:.40}")
        age_ms = 0
        if level == "linearizable":
            await self.barrier()
        else:
            age_ms = self.age_ms()
        if isinstance(min_idx, int) and not await self._machine.reached(min_idx, MIN_IDX_WAIT_S):
            raise Unavailable(
                "lagging",
                f"this voter has applied {self._machine.index}, {min_idx} was asked for.",
                "Ask another voter, or again later.",
            )
        wanted = reads if isinstance(reads, list) else []
        index, results = await self._feeds.reader_call(lambda reader: reader.query(wanted))
        return {"idx": index, "age_ms": age_ms, "results": results}

    async def barrier(self) -> None:
        """Wait until this state includes every write acknowledged before the call. Raises Unavailable."""
        node = self._raft.node
        if self._raft.alone and node.may_serve_lease_reads():
            index = node.raft.log.committed  # alone, it is its own quorum, also with a full disk
        elif self._raft.disk_is_full:
            problem = disk_full()
            raise DiskFull(problem.code, problem.message, "Ask another voter, or for a stale read.")
        else:
            index = await self._confirmed()
        if not await self._machine.reached(index, READ_WAIT_S):
            raise Unavailable(
                "lagging",
                f"this voter has applied {self._machine.index}, the leader is at {index}.",
                "Ask another voter.",
            )

    async def _confirmed(self) -> int:
        asked = self._reads.ask()
        self._raft.wake()
        try:
            return await asked
        except TimeoutError as error:
            problem = no_leader()
            raise NoLeader(problem.code, problem.message, problem.hint) from error

    def age_ms(self) -> int:
        """How long ago this state was surely the newest; -1 when no leader was heard since the start."""
        self.note_lease()
        return int((self._loop.time() - self._fresh_at) * 1000) if self._fresh_at is not None else -1

    def note_lease(self) -> None:
        """A leader's state was the newest when it sent the last round that a quorum has answered."""
        sent_ns = self._raft.quorum_lease_sent_ns()
        if sent_ns:
            self._fresh_at = self._loop.time() - (boottime_ns() - sent_ns) / 1e9
