"""Heartbeat rounds, the reads they confirm, and what a follower does with them."""

from __future__ import annotations

from mesh.core.raft.config import Config
from mesh.core.raft.errors import ReadDropped
from mesh.core.raft.message import Message, MsgType
from mesh.core.raft.node_state import RaftState
from mesh.core.raft.reads import ContextReads, PendingRead, ReadRequest, ReadTracker, RoundReads
from mesh.core.raft.ready import ReadState, Role


class Heartbeats(RaftState):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.rounds: RoundReads | None = RoundReads(self.id, self.quorum) if config.reads == "rounds" else None
        self.reads: ReadTracker = self.rounds or ContextReads(self.id, self.quorum)
        self.read_states: list[ReadState] = []
        self.dropped_reads: list[bytes] = []
        self.early_reads: list[ReadRequest] = []
        """Asked of a leader that has not committed in its own term, so does not know what is committed."""

    # -- rounds

    def broadcast_heartbeat(self) -> None:
        self.send_heartbeats(self.reads.next_context())
        if self.rounds is not None and len(self.quorum.ids) == 1:
            self.answer(self.rounds.confirmed())  # a single voter is its own quorum

    def send_heartbeats(self, context: bytes) -> None:
        for to in self.peers:
            # Never beyond match: the member's log may differ there, and a heartbeat carries no check.
            commit = min(self.tracker.progress[to].match, self.log.committed)
            self.send(Message(MsgType.HEARTBEAT, to, commit=commit, context=context))

    def handle_heartbeat(self, m: Message) -> None:
        self.log.commit_to(m.commit)
        self.send(Message(MsgType.HEARTBEAT_RESP, m.from_, context=m.context))

    # -- read-index

    def read_index(self, request: ReadRequest) -> None:
        """Ask for an index at which a read is linearizable. The answer comes as a ReadState."""
        if self.role is not Role.LEADER:
            self.forward_read(request)
        elif not self.may_start_read():
            self.early_reads.append(request)
        else:
            self.start_read(request)

    def may_start_read(self) -> bool:
        """A new leader may not know the newest commits until it has committed an entry of its own term."""
        return self.own_term_committed()

    def start_read(self, request: ReadRequest) -> None:
        if len(self.quorum.ids) == 1:
            self.answer([PendingRead(request, self.log.committed)])
            return
        context = self.reads.add(request, self.log.committed)
        if context is not None:
            self.send_heartbeats(context)

    def forward_read(self, request: ReadRequest) -> None:
        if not self.leader:
            if request.origin == self.id:
                raise ReadDropped("no leader is known; retry after the next election")
            return
        if request.origin != self.id and self.rounds is not None:
            # The asker will hear of the new leader itself. etcd 3.4 sends it on under its own name instead.
            return
        self.send(Message(MsgType.READ_INDEX, self.leader, context=request.context))

    def release_early_reads(self) -> None:
        waiting, self.early_reads = self.early_reads, []
        for request in waiting:
            self.start_read(request)

    def answer(self, reads: list[PendingRead]) -> None:
        for read in reads:
            if read.request.origin == self.id:
                self.read_states.append(ReadState(read.index, read.request.context))
            else:
                self.send(
                    Message(
                        MsgType.READ_INDEX_RESP, read.request.origin, index=read.index, context=read.request.context
                    )
                )

    def handle_read_answer(self, m: Message) -> None:
        self.read_states.append(ReadState(m.index, m.context))

    def reset_reads(self) -> None:
        """Role or term changes: whatever waited for this leadership can no longer be confirmed."""
        if self.rounds is not None:
            waiting = [p.request for p in self.reads.pending()] + self.early_reads
            self.dropped_reads += [r.context for r in waiting if r.origin == self.id]
            self.early_reads = []
        self.reads.reset()
