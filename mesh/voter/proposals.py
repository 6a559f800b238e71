"""Commands between their proposal on this leader and their outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from mesh.core.raft.errors import ProposalDropped
from mesh.core.raft.rawnode import RawNode
from mesh.core.state.outcome import Outcome
from mesh.voter.answers import Reply, disk_full, no_leader, old_term, outcome_unknown, overloaded, too_large
from schemas.errors import Problem
from schemas.limits import ENTRY_MAX
from schemas.versions import version_refusal

WAITING_MAX = 8_192
WAITING_BYTES_MAX = 32 * 1024 * 1024
ANSWER_WITHIN_S = 10.0


@dataclass(slots=True)
class _Pending:
    term: int
    reply: Reply
    size: int
    since: float


class Proposals:
    """Queued until the loop's turn, then one batch; answered when applied."""

    def __init__(
        self,
        node: RawNode,
        wall_ms: Callable[[], int],
        applied_stamp_ms: Callable[[], int],
        cluster_version: Callable[[], int],
    ) -> None:
        self._node = node
        self._cluster_version = cluster_version
        self._wall_ms, self._applied_stamp_ms = wall_ms, applied_stamp_ms
        self._last_stamp_ms = 0
        self._queue: list[tuple[bytes, int | None, Reply]] = []
        self._pending: dict[int, _Pending] = {}
        self._bytes = 0
        self.disk_is_full = False

    def __len__(self) -> int:
        return len(self._pending) + len(self._queue)

    def add(self, command: dict[str, Any], term: int | None, reply: Reply) -> None:
        """`command` was checked; term is the one it was planned in, if any. It is stamped here."""
        if self.disk_is_full:
            reply(None, disk_full())
            return
        if (refusal := version_refusal(command, self._cluster_version())) is not None:
            reply(None, refusal)
            return
        stamp = max(self._wall_ms(), self._last_stamp_ms, self._applied_stamp_ms())
        raw: bytes = msgpack.packb({**command, "at_ms": stamp})
        if len(raw) > ENTRY_MAX:
            reply(None, too_large(str(command.get("t")), len(raw)))
        elif len(self) >= WAITING_MAX or self._bytes + len(raw) > WAITING_BYTES_MAX:
            reply(None, overloaded())
        else:
            self._last_stamp_ms = stamp
            self._bytes += len(raw)
            self._queue.append((raw, term, reply))

    def flush(self, now: float) -> None:
        """Append everything queued as one batch."""
        if not self._queue:
            return
        queue, self._queue = self._queue, []
        node = self._node
        term = node.term
        batch: list[bytes] = []
        replies: list[Reply] = []
        for raw, planned, reply in queue:
            if not node.is_leader:
                self._drop(raw, reply, no_leader())
            elif planned is not None and planned != term:
                self._drop(raw, reply, old_term(planned, term))
            else:
                batch.append(raw)
                replies.append(reply)
        if not batch:
            return
        try:
            index = node.propose_batch(batch)
        except ProposalDropped:
            for raw, reply in zip(batch, replies, strict=True):
                self._drop(raw, reply, overloaded())
            return
        for at, reply in enumerate(replies, index):
            stale = self._pending.pop(at, None)
            if stale is not None:
                self._settle(stale, None, outcome_unknown("the leader changed"))
            self._pending[at] = _Pending(term, reply, len(batch[at - index]), now)

    def _drop(self, raw: bytes, reply: Reply, problem: Problem) -> None:
        self._bytes -= len(raw)
        reply(None, problem)

    def applied(self, outcomes: list[tuple[int, int, Outcome]], upto: int) -> None:
        """These were applied; what waits up to `upto` without an outcome was replaced by another leader's entry."""
        pending = self._pending
        for index, term, outcome in outcomes:
            waiting = pending.pop(index, None)
            if waiting is None:
                continue
            if waiting.term == term:
                answer = {
                    "idx": index,
                    "ok": outcome.ok,
                    "code": outcome.code,
                    "text": outcome.text,
                    "data": outcome.data,
                }
                self._settle(waiting, answer, None)
            else:
                self._settle(waiting, None, no_leader())
        while pending and (index := next(iter(pending))) <= upto:
            self._settle(pending.pop(index), None, no_leader())

    def fail_all(self, problem: Problem) -> None:
        """Leadership is lost or the disk is full: what becomes of these is not known here."""
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            self._settle(waiting, None, problem)

    def expire(self, now: float) -> None:
        for index, waiting in list(self._pending.items()):
            if now - waiting.since < ANSWER_WITHIN_S:
                break
            del self._pending[index]
            self._settle(waiting, None, outcome_unknown(f"no majority has confirmed it for {ANSWER_WITHIN_S:.0f} s"))

    def _settle(self, waiting: _Pending, value: dict[str, Any] | None, problem: Problem | None) -> None:
        self._bytes -= waiting.size
        waiting.reply(value, problem)
