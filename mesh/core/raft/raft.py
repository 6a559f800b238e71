"""The state machine: messages and ticks in, messages out. No clock, no I/O, no threads."""

from __future__ import annotations

from mesh.core.raft.config import Config
from mesh.core.raft.elections import Elections
from mesh.core.raft.errors import DropReason, ProposalDropped
from mesh.core.raft.message import TRANSFER, Message, MsgType
from mesh.core.raft.reads import ReadRequest
from mesh.core.raft.ready import Role

_FROM_LEADER = frozenset({MsgType.APP, MsgType.HEARTBEAT})
_CAMPAIGN = frozenset({MsgType.VOTE, MsgType.PRE_VOTE})


class Raft(Elections):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.become_follower(self.term, 0)

    # -- time

    def tick(self) -> None:
        self.hold_ticks = max(0, self.hold_ticks - 1)
        self.quiet_ticks = max(0, self.quiet_ticks - 1)
        if self.role is Role.LEADER:
            self._tick_leader()
            return
        self.election_elapsed += 1
        if self.election_elapsed >= self.randomized_timeout and not self.campaign_refusal():
            self.election_elapsed = 0
            self.start_campaign()

    def _tick_leader(self) -> None:
        self.heartbeat_elapsed += 1
        self.election_elapsed += 1
        if self.election_elapsed >= self.config.election_ticks:
            self.election_elapsed = 0
            if self.config.check_quorum:
                self._check_quorum()
        if self.role is Role.LEADER and self.heartbeat_elapsed >= self.config.heartbeat_ticks:
            self.heartbeat_elapsed = 0
            self.broadcast_heartbeat()

    def _check_quorum(self) -> None:
        """Once per election timeout: did a quorum answer since the last time?"""
        self.tracker.progress[self.id].recent_active = True
        if not self.tracker.quorum_active():
            self.step_down_reason = "no quorum answered for an election timeout"
            self.become_follower(self.term, 0)
        for member, progress in self.tracker.progress.items():
            if member != self.id:
                progress.recent_active = False

    # -- local requests

    def propose(self, batch: list[bytes]) -> int:
        """Append to the log if this node leads. Returns the index of the first entry."""
        if self.role is not Role.LEADER:
            raise ProposalDropped(DropReason.NOT_LEADER if self.leader else DropReason.NO_LEADER, self.leader)
        if not self.room_for(batch):
            raise ProposalDropped(DropReason.UNCOMMITTED_FULL, self.id)
        last = self.append_own(batch)
        self.broadcast_append()
        return last - len(batch) + 1

    def step_down(self, reason: str, quiet_ticks: int) -> None:
        self.step_down_reason = reason
        self.quiet_ticks = max(self.quiet_ticks, quiet_ticks)
        successor = self.successor() if self.role is Role.LEADER else 0
        if self.role is not Role.FOLLOWER:
            self.become_follower(self.term, 0)
        if successor:
            # Only after the lead is given up: votes asked for on this word do not wait for the quorum lease to end.
            self.send(Message(MsgType.TIMEOUT_NOW, successor))

    def persisted(self, index: int, term: int) -> None:
        """The own log is on disk up to (index, term)."""
        self.log.stable_to(index, term)
        counts_now = self.role is Role.LEADER and self.config.self_ack == "after_persist"
        if counts_now and self.acknowledge_own(self.log.stable_index()):
            self.release_early_reads()
            self.broadcast_append()

    # -- messages

    def step(self, m: Message) -> None:
        """Handle a message from another member. The caller has checked where it comes from."""
        if m.term > self.term:
            if not self._meet_higher_term(m):
                return
        elif m.term < self.term and m.type is not MsgType.READ_INDEX:
            self._answer_lower_term(m)
            return
        if m.type in _CAMPAIGN:
            self.handle_vote(m)
        elif m.type is MsgType.READ_INDEX:
            self.read_index(ReadRequest(m.from_, m.context))
        elif self.role is Role.LEADER:
            self._step_leader(m)
        else:
            self._step_other(m)

    def _meet_higher_term(self, m: Message) -> bool:
        """Follow a higher term where the message proves it. False if the message is to be ignored."""
        if m.type in _CAMPAIGN and self.in_lease() and m.context != TRANSFER:
            return False
        if m.type is MsgType.PRE_VOTE or (m.type is MsgType.PRE_VOTE_RESP and not m.reject):
            # Nobody stands in that term yet; a granted pre-vote echoes the term we asked for.
            return True
        self.become_follower(m.term, m.from_ if m.type in _FROM_LEADER else 0)
        return True

    def _answer_lower_term(self, m: Message) -> None:
        if m.type in _FROM_LEADER:
            if self.config.check_quorum or self.config.pre_vote:
                # With leases and pre-votes our higher term reaches that leader in no other way, and it would
                # never take us back in.
                self.send(Message(MsgType.APP_RESP, m.from_))
        elif m.type is MsgType.PRE_VOTE:
            # Silence could deadlock: a candidate with a higher term but an older log would never learn of ours.
            self.send(Message(MsgType.PRE_VOTE_RESP, m.from_, term=self.term, reject=True))

    def _step_leader(self, m: Message) -> None:
        if m.type is MsgType.APP_RESP:
            self.handle_append_resp(m)
        elif m.type is MsgType.HEARTBEAT_RESP:
            self.handle_heartbeat_resp(m)

    def _step_other(self, m: Message) -> None:
        if m.type in _FROM_LEADER:
            if self.role is Role.FOLLOWER:
                self.election_elapsed = 0
                self.leader = m.from_
            else:
                self.become_follower(m.term, m.from_)
            if m.type is MsgType.APP:
                self.handle_append(m)
            else:
                self.handle_heartbeat(m)
        elif self.role is Role.FOLLOWER:
            if m.type is MsgType.READ_INDEX_RESP:
                self.handle_read_answer(m)
            elif m.type is MsgType.TIMEOUT_NOW:
                self.handle_timeout_now()
        elif m.type is (MsgType.PRE_VOTE_RESP if self.role is Role.PRE_CANDIDATE else MsgType.VOTE_RESP):
            self.handle_vote_resp(m)
