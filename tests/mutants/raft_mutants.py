"""Deliberate bugs in the Raft core, as context managers that patch one named decision each.

    with MUTANTS["vote-ignores-log-freshness"]():
        ...  # every node of the core has the bug here

The product has no switch for them: they replace methods from outside. Each must be killed by a named test
(test_raft_mutants.py); the simulator uses the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from mesh.core.raft import HardState, Message, MsgType, RawNode, Ready
from mesh.core.raft.elections import Elections
from mesh.core.raft.heartbeats import Heartbeats
from mesh.core.raft.node_state import RaftState
from mesh.core.raft.raft import Raft
from mesh.core.raft.reads import PendingRead, ReadRequest


@contextmanager
def vote_not_persisted() -> Iterator[None]:
    """The hard state to be written leaves out the vote, so a restart forgets it and votes twice."""
    honest = RawNode.ready

    def ready(self: RawNode) -> Ready:
        rd = honest(self)
        if rd.hard_state is not None:
            rd.hard_state = HardState(rd.hard_state.term, 0, rd.hard_state.commit)
        return rd

    with mock.patch.object(RawNode, "ready", ready):
        yield


@contextmanager
def commit_older_term_by_count() -> Iterator[None]:
    """An entry of an older term counts as committed once a majority holds it (Raft, figure 8)."""
    with mock.patch.object(RaftState, "may_commit_by_count", lambda self, index: True):
        yield


@contextmanager
def ack_before_fsync() -> Iterator[None]:
    """Everything may be sent before the write, no write must be synced, and a leader counts its unwritten copy."""
    honest_ready, honest_append = RawNode.ready, RaftState.append_own

    def ready(self: RawNode) -> Ready:
        rd = honest_ready(self)
        rd.must_sync = False
        return rd

    def split_messages(self: Ready) -> tuple[list[Message], list[Message]]:
        return self.messages, []

    def append_own(self: RaftState, batch: list[bytes]) -> int:
        last = honest_append(self, batch)
        self.acknowledge_own(last)
        return last

    with (
        mock.patch.object(RawNode, "ready", ready),
        mock.patch.object(Ready, "split_messages", split_messages),
        mock.patch.object(RaftState, "append_own", append_own),
        mock.patch.object(RaftState, "own_match", lambda self: self.log.last_index()),
    ):
        yield


@contextmanager
def vote_ignores_log_freshness() -> Iterator[None]:
    """Any candidate may get the vote, also one that lacks committed entries."""
    with mock.patch.object(Elections, "log_is_fresh_enough", lambda self, m: True):
        yield


@contextmanager
def stale_read_index() -> Iterator[None]:
    """A leader answers reads at its commit index at once: not confirmed by a quorum, nor by an own-term commit."""

    def start_read(self: Heartbeats, request: ReadRequest) -> None:
        self.answer([PendingRead(request, self.log.committed)])

    def yes(self: Any) -> bool:
        return True

    with (
        mock.patch.object(Heartbeats, "start_read", start_read),
        mock.patch.object(Heartbeats, "may_start_read", yes),
    ):
        yield


@contextmanager
def leads_after_handing_over() -> Iterator[None]:
    """A leader tells its successor to stand and goes on leading: its quorum lease outlives the successor's election."""

    def step_down(self: Raft, reason: str, quiet_ticks: int) -> None:
        if successor := self.successor():
            self.send(Message(MsgType.TIMEOUT_NOW, successor))

    with mock.patch.object(Raft, "step_down", step_down):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "vote-not-persisted": vote_not_persisted,
    "commit-older-term-by-count": commit_older_term_by_count,
    "ack-before-fsync": ack_before_fsync,
    "vote-ignores-log-freshness": vote_ignores_log_freshness,
    "stale-read-index": stale_read_index,
}

OWN_MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "leads-after-handing-over": leads_after_handing_over,
}
"""Of what etcd does otherwise, so that lock-step has nothing to say: its leader leads on, and keeps no lease that this
would void."""
