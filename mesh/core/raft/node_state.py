"""State of one node and the changes of role: the bottom layer of the core.

The core is one object built in layers, each a class that adds one concern and may call only downwards:
RaftState (roles, own log) < Heartbeats (rounds, read-index) < Replication (appends) < Elections < Raft (step, tick).
"""

from __future__ import annotations

from mesh.core.raft.config import Config
from mesh.core.raft.entry import Entry, EntryKind, HardState, payload_bytes
from mesh.core.raft.errors import InvariantViolation
from mesh.core.raft.log import RaftLog
from mesh.core.raft.message import Message, MsgType
from mesh.core.raft.progress import ProgressState, Tracker
from mesh.core.raft.quorum import Majority
from mesh.core.raft.ready import Role, SoftState

# Their term is chosen by the sender's campaign, not by its current term.
_OWN_TERM_TYPES = frozenset({MsgType.VOTE, MsgType.VOTE_RESP, MsgType.PRE_VOTE, MsgType.PRE_VOTE_RESP})


class RaftState:
    def __init__(self, config: Config) -> None:
        hard_state, voters = config.storage.initial_state()
        self.config = config
        self.id = config.id
        self.quorum = Majority(voters)
        self.peers = tuple(i for i in self.quorum.ids if i != config.id)
        self.tracker = Tracker(self.quorum, config.max_inflight)
        self.log = RaftLog(
            config.storage,
            hard_state.commit,
            config.applied,
            config.self_ack == "on_append",
            config.max_apply_bytes,
        )
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.leader = 0
        self.role = Role.FOLLOWER
        self.msgs: list[Message] = []
        self.uncommitted_bytes = 0
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.randomized_timeout = 0
        self.quiet_ticks = 0
        self.hold_ticks = config.election_ticks if config.lease_after_restart and self.term > 0 else 0
        self.step_down_reason = ""
        self.append_due = False

    # -- views

    def soft_state(self) -> SoftState:
        return SoftState(self.leader, self.role)

    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote, self.log.committed)

    def is_voter(self) -> bool:
        return self.id in self.quorum.ids

    def own_term_committed(self) -> bool:
        """Whether the commit index is in this term: only then does a leader know what is committed."""
        return self.log.term(self.log.committed) == self.term

    def send(self, message: Message) -> None:
        message.from_ = self.id
        if message.type not in _OWN_TERM_TYPES and message.type is not MsgType.READ_INDEX:
            message.term = self.term
        self.msgs.append(message)

    # -- roles

    def reset(self, term: int) -> None:
        if self.term != term:
            self.term = term
            self.vote = 0
        self.leader = 0
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.randomized_timeout = self.draw_timeout()
        self.uncommitted_bytes = 0
        self.append_due = False
        last = self.log.last_index()
        self.tracker.reset(self.id, last, self.own_match())
        self.reset_reads()

    def reset_reads(self) -> None:
        raise NotImplementedError

    def draw_timeout(self) -> int:
        ticks = self.config.election_ticks
        return ticks + self.config.rng.randrange(ticks)

    def become_follower(self, term: int, leader: int) -> None:
        self.reset(term)
        self.leader = leader
        self.role = Role.FOLLOWER

    def become_candidate(self) -> None:
        if self.role is Role.LEADER:
            raise InvariantViolation("a leader cannot become a candidate")
        self.reset(self.term + 1)
        self.vote = self.id
        self.role = Role.CANDIDATE

    def become_pre_candidate(self) -> None:
        """Changes neither term nor vote: that is the point of the pre-vote."""
        if self.role is Role.LEADER:
            raise InvariantViolation("a leader cannot become a pre-candidate")
        self.tracker.votes = {}
        self.leader = 0
        self.role = Role.PRE_CANDIDATE

    def become_leader(self) -> None:
        if self.role is not Role.CANDIDATE:
            raise InvariantViolation(f"a {self.role.name} cannot become the leader")
        self.reset(self.term)
        self.leader = self.id
        self.role = Role.LEADER
        self.step_down_reason = ""
        self.tracker.progress[self.id].become(ProgressState.REPLICATE)
        # Entries of earlier terms are committed only through one of this term, so there must be one at once.
        self.append_own([b""])

    # -- the leader's own log

    def append_own(self, batch: list[bytes]) -> int:
        """Append proposals to the own log. Returns the index of the last."""
        first = self.log.last_index() + 1
        term = self.term
        self.log.append([Entry(i, term, EntryKind.NORMAL, data) for i, data in enumerate(batch, first)])
        last = first + len(batch) - 1
        if self.config.self_ack == "on_append":
            self.acknowledge_own(last)
        return last

    def own_match(self) -> int:
        """How far the own log counts towards the quorum."""
        if self.config.self_ack == "on_append":
            return self.log.last_index()
        return self.log.stable_index()

    def acknowledge_own(self, index: int) -> bool:
        """The leader's own copy up to index counts from now on. True if the commit index moved."""
        self.tracker.progress[self.id].maybe_update(index)
        return self.maybe_commit()

    def maybe_commit(self) -> bool:
        index = self.tracker.committed()
        if index > self.log.committed and self.may_commit_by_count(index):
            self.log.commit_to(index)
            return True
        return False

    def may_commit_by_count(self, index: int) -> bool:
        """Only an entry of the own term (Raft figure 8): an older one on a majority can still be overwritten."""
        return self.log.term(index) == self.term

    def room_for(self, batch: list[bytes]) -> bool:
        """Whether the batch fits the uncommitted limit, and if so counts it. An empty tail takes any size."""
        size = sum(map(len, batch))
        if self.uncommitted_bytes > 0 and self.uncommitted_bytes + size > self.config.max_uncommitted_bytes:
            return False
        self.uncommitted_bytes += size
        return True

    def release_uncommitted(self, entries: list[Entry]) -> None:
        if self.uncommitted_bytes:
            # Entries of an earlier leadership were never counted here, hence the floor.
            self.uncommitted_bytes = max(0, self.uncommitted_bytes - payload_bytes(entries))
