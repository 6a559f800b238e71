"""The driver of the Raft core: proposals and messages in, one write at a time to the log thread, messages out.

While a write is under way the loop goes on taking in messages and proposals; they share the next write. That is the
whole batching: no timer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Any, Protocol

from mesh.core.raft.entry import HardState, payload_bytes
from mesh.core.raft.errors import MessageRefused
from mesh.core.raft.message import Message
from mesh.core.raft.rawnode import RawNode
from mesh.core.raft.ready import ReadState, Ready, Role, SoftState
from mesh.store.errors import DiskFull
from mesh.store.log_db import LogDb
from mesh.store.raft_storage import RaftStorage
from mesh.store.worker import Worker
from mesh.voter.machine import Machine
from mesh.voter.proposals import Proposals

RETRY_S = 1.0
FSYNC_SAMPLES = 1_024
CHECKPOINT_BYTES = 4 * 1024 * 1024
"""The WAL is copied back about this often: bounded, and small enough that it does not show in the commit latency."""

_logger = logging.getLogger("heteroflow.voter")


class Hooks(Protocol):
    """What the loop tells the rest of the voter."""

    def send(self, messages: list[Message]) -> None: ...

    def leadership(self, soft: SoftState, term: int) -> None: ...

    def reads(self, served: list[ReadState], dropped: list[bytes]) -> None: ...

    def disk_full(self, full: bool) -> None: ...

    def fatal(self, error: BaseException) -> None: ...

    def before_turn(self) -> None: ...


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class RaftLoop:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: RawNode,
        log: LogDb,
        storage: RaftStorage,
        worker: Worker,
        machine: Machine,
        proposals: Proposals,
        hooks: Hooks,
    ) -> None:
        self._loop, self.node, self._log, self._storage = loop, node, log, storage
        self._worker, self._machine, self._proposals, self._hooks = worker, machine, proposals, hooks
        self._scheduled = False
        self._writing = False
        self._stopped = False
        self._full = False
        self._unchecked_bytes = 0
        self._soft = SoftState(0, Role.FOLLOWER)
        self._told_term = node.term
        self._saved = log.hard_state
        self._round_sent_ns: deque[tuple[int, int]] = deque(maxlen=256)
        self.fsync_ms: deque[float] = deque(maxlen=FSYNC_SAMPLES)

    def wake(self) -> None:
        """Take a turn after everything that is ready to run now: what arrives together is written together."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def step(self, messages: list[Message]) -> None:
        try:
            for message in messages:
                try:
                    self.node.step(message)
                except MessageRefused as refusal:
                    _logger.warning("a peer's message was refused: %s", refusal)
        except Exception as error:
            self._stop(error)
            return
        self.wake()

    def tick(self) -> None:
        self.node.tick()
        if self._writing and not self._stopped:
            self._send_urgent()
        self.wake()

    def _send_urgent(self) -> None:
        """Heartbeats and the word to a successor promise nothing about the own disk: they do not wait for it."""
        urgent = self.node.take_urgent()
        if urgent:
            self._round_sent_ns.append((self.node.beat_round(), boottime_ns()))
            self._hooks.send(urgent)

    def stop(self) -> None:
        self._stopped = True

    @property
    def alone(self) -> bool:
        """The only voter: its own quorum."""
        return len(self.node.raft.quorum.ids) == 1

    def give_up_lead(self, reason: str) -> None:
        """Let another voter lead for two election timeouts. A voter that is alone goes on: nobody could take over."""
        if not self.alone:
            self.node.step_down(reason, quiet_ticks=2 * self.node.raft.config.election_ticks)

    @property
    def disk_is_full(self) -> bool:
        """Nothing can be written, so nothing can be sent that would promise or confirm anything."""
        return self._full

    def quorum_lease_sent_ns(self) -> int:
        """CLOCK_BOOTTIME at which the newest round that a quorum has answered was sent; 0 without one."""
        acked = self.node.quorum_acked_round()
        if not acked:
            return 0
        for beat_round, sent_ns in reversed(self._round_sent_ns):
            if beat_round <= acked:
                return sent_ns
        return 0

    def _turn(self) -> None:
        self._scheduled = False
        if self._stopped or self._writing or self._machine.behind:
            return
        try:
            self._proposals.flush(self._loop.time())
            self._hooks.before_turn()
            node = self.node
            while node.has_ready():
                if not self._work(node.ready()):
                    return
        except Exception as error:
            # Going on after half a turn could break a promise; a restart reads what is on the disk.
            self._stop(error)

    def _work(self, rd: Ready) -> bool:
        """Do one Ready. False when it waits for the log thread."""
        if rd.beat_round:
            self._round_sent_ns.append((rd.beat_round, boottime_ns()))
        early, late = rd.split_messages()
        if early and rd.entries:
            self._hooks.send(early)
        if rd.committed_entries:
            # They are in the stable log already, so they need not wait for the write of this Ready.
            self._machine.feed(rd.committed_entries)
        if early and not rd.entries:
            # Telling followers of a commit delays nobody; the proposer's answer comes first.
            self._hooks.send(early)
        hard = rd.hard_state
        if hard is not None:
            self._saved = hard
        if not rd.must_sync:
            # A commit index alone is not worth an fsync: it is saved with the next entries.
            self._finish(rd, late)
            return True
        self._writing = True
        self._write(rd, late)
        return False

    def _write(self, rd: Ready, late: list[Message]) -> None:
        hard: HardState = self._saved
        entries, log = rd.entries, self._log

        def job() -> float:
            before = time.perf_counter()
            log.write(entries, hard)
            return time.perf_counter() - before

        def done(took_s: Any, error: BaseException | None) -> None:
            self._written(rd, late, took_s, error)

        # After the links' tasks, which send() has woken: the log thread's start would contend with them for the
        # interpreter, and a commit waits for the followers, not for the own disk. Half as many commits again.
        self._loop.call_soon(self._worker.submit, job, done)

    def _written(self, rd: Ready, late: list[Message], took_s: float, error: BaseException | None) -> None:
        if self._stopped:
            return
        if isinstance(error, DiskFull):
            self._refuse(rd, late, error)
            return
        if error is not None:
            self._stop(error)
            return
        self.fsync_ms.append(took_s * 1000)
        self._writing = False
        if self._full:
            self._full = False
            _logger.warning("%s: there is space again; writing goes on", self._log.path)
            self._hooks.disk_full(False)
        try:
            self._storage.persisted(rd.entries)
            self._finish(rd, late)
        except Exception as failure:
            self._stop(failure)
            return
        self._turn()
        self._unchecked_bytes += payload_bytes(rd.entries) + 4096
        if self._unchecked_bytes > CHECKPOINT_BYTES:
            self._unchecked_bytes = 0
            self._worker.submit(self._log.checkpoint, self._checked)

    def _refuse(self, rd: Ready, late: list[Message], error: DiskFull) -> None:
        """The disk is full: nothing of this Ready is promised to anyone; the same write is tried again each second."""
        if not self._full:
            self._full = True
            _logger.error("%s; trying again each second", error)
            self.give_up_lead("its disk is full")
            self._hooks.disk_full(True)
        self._loop.call_later(RETRY_S, self._write, rd, late)

    def _checked(self, _: Any, error: BaseException | None) -> None:
        if error is not None:
            self._stop(error)

    def _finish(self, rd: Ready, late: list[Message]) -> None:
        if late:
            self._hooks.send(late)
        self.node.advance()
        if rd.soft_state is not None:
            self._soft = rd.soft_state
        if rd.soft_state is not None or self.node.term != self._told_term:
            self._told_term = self.node.term
            self._hooks.leadership(self._soft, self._told_term)
        if rd.read_states or rd.dropped_reads:
            self._hooks.reads(rd.read_states, rd.dropped_reads)

    def _stop(self, error: BaseException) -> None:
        self._stopped = True
        self._hooks.fatal(error)
