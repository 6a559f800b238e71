"""Campaigns, votes and the leader's lease."""

from __future__ import annotations

from mesh.core.raft.message import TRANSFER, Message, MsgType
from mesh.core.raft.quorum import VoteResult
from mesh.core.raft.ready import Role
from mesh.core.raft.replication import Replication

_ANSWER_OF = {MsgType.VOTE: MsgType.VOTE_RESP, MsgType.PRE_VOTE: MsgType.PRE_VOTE_RESP}


class Elections(Replication):
    # -- standing

    def campaign_refusal(self) -> str:
        """Why this node must not campaign now; empty if it may."""
        if self.role is Role.LEADER:
            return "it is the leader already"
        if not self.is_voter():
            return "it is not a voter"
        if self.quiet_ticks:
            return f"it stepped down ({self.step_down_reason}) and stays quiet for {self.quiet_ticks} more ticks"
        return ""

    def start_campaign(self) -> None:
        self.campaign(MsgType.PRE_VOTE if self.config.pre_vote else MsgType.VOTE)

    def campaign(self, kind: MsgType, context: bytes = b"") -> None:
        if kind is MsgType.PRE_VOTE:
            self.become_pre_candidate()
            term = self.term + 1  # the term it would stand in, not its own yet
        else:
            self.become_candidate()
            term = self.term
        if self.tracker.record_vote(self.id, True) is VoteResult.WON:
            self.won(kind)  # a single voter
            return
        last, last_term = self.log.last_index(), self.log.last_term()
        for to in self.peers:
            self.send(Message(kind, to, term=term, log_term=last_term, index=last, context=context))

    def won(self, kind: MsgType) -> None:
        if kind is MsgType.PRE_VOTE:
            self.campaign(MsgType.VOTE)
        else:
            self.become_leader()
            self.broadcast_append()

    def handle_vote_resp(self, m: Message) -> None:
        """For a (pre-)candidate, of the answer type it waits for."""
        result = self.tracker.record_vote(m.from_, not m.reject)
        if result is VoteResult.WON:
            self.won(MsgType.PRE_VOTE if self.role is Role.PRE_CANDIDATE else MsgType.VOTE)
        elif result is VoteResult.LOST:
            self.become_follower(self.term, 0)

    # -- handing over

    def successor(self) -> int:
        """For a leader: the member that lacks least of the log, one heard lately before any other; 0 if alone."""
        progress = self.tracker.progress
        return max(self.peers, key=lambda member: (progress[member].recent_active, progress[member].match), default=0)

    def handle_timeout_now(self) -> None:
        """Stand at once, without a pre-vote: the leader that said so has stepped down, so nobody is disturbed."""
        if not self.campaign_refusal():
            self.campaign(MsgType.VOTE, TRANSFER)

    # -- voting

    def in_lease(self) -> bool:
        """Whether a leader was heard less than a minimum election timeout ago, so that campaigns are ignored."""
        if not self.config.check_quorum:
            return False
        return self.hold_ticks > 0 or (self.leader != 0 and self.election_elapsed < self.config.election_ticks)

    def handle_vote(self, m: Message) -> None:
        answer = _ANSWER_OF[m.type]
        if self.may_vote_for(m) and self.log_is_fresh_enough(m):
            # The answer carries the message's term: for a pre-vote it lies ahead of ours, and an answer in
            # our own, older term would be ignored as stale.
            self.send(Message(answer, m.from_, term=m.term))
            if m.type is MsgType.VOTE:
                self.election_elapsed = 0
                self.vote = m.from_
        else:
            self.send(Message(answer, m.from_, term=self.term, reject=True))

    def may_vote_for(self, m: Message) -> bool:
        """One vote a term, a repeat of it, or a pre-vote for a term ahead (which binds nobody)."""
        if self.vote == m.from_ or (self.vote == 0 and self.leader == 0):
            return True
        return m.type is MsgType.PRE_VOTE and m.term > self.term

    def log_is_fresh_enough(self, m: Message) -> bool:
        """A leader must hold every committed entry, so voters refuse a log that ends before their own."""
        return self.log.is_up_to_date(m.index, m.log_term)
