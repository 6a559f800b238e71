"""RawNode: the API of the core, and the contract with its driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.core.raft.config import Config
from mesh.core.raft.entry import HardState
from mesh.core.raft.errors import InvariantViolation, MessageRefused
from mesh.core.raft.message import LOCAL_TYPES, Message
from mesh.core.raft.progress import ProgressState
from mesh.core.raft.raft import Raft
from mesh.core.raft.reads import ReadRequest
from mesh.core.raft.ready import URGENT, Ready, Role


@dataclass(slots=True, frozen=True)
class PeerStatus:
    match: int
    next: int
    state: ProgressState
    active: bool
    inflight: int
    paused: bool


@dataclass(slots=True, frozen=True)
class Status:
    id: int
    role: Role
    leader: int
    term: int
    vote: int
    commit: int
    applied: int
    last_index: int
    stable_index: int
    quiet_ticks: int
    step_down_reason: str
    """Why this node last gave up leadership or was told to stay quiet; empty after it won an election."""
    progress: Mapping[int, PeerStatus]
    """Empty unless this node leads."""
    quorum: str
    """For people; empty unless this node leads."""


class RawNode:
    """One member of the group, without clock, disk or network.

    The driver owns those, and calls from one thread:

    1. Feed: tick() at a fixed rate, step(message) for each message received, propose*(), read_index().
    2. While has_ready(): take rd = ready(), then in this order
       a. note the time now as the send time of heartbeat round rd.beat_round and of every unnoted round below it;
       b. early, late = rd.split_messages(); send early at any time from here on;
       c. write rd.entries (dropping any stored suffix from the first one's index on) and rd.hard_state in one
          transaction; if rd.must_sync it must be durable before d. Any error here: stop the process, never retry;
       d. send late;
       e. apply rd.committed_entries in order (one with empty data is a new leader's own: skip it); act on
          rd.soft_state, rd.read_states (serve each once the state machine has applied its index) and
          rd.dropped_reads;
       f. advance(). What the write made committable is in the next Ready, so loop.
    3. Feeding between ready() and advance() is allowed (say, while the write runs on another thread); what it
       causes is in the next Ready. Only one Ready may be outstanding. While a write takes long, send
       take_urgent() after each tick, or a slow disk costs a leader its followers.

    Messages may be lost, repeated and reordered at will. On restart give Config.applied from the state machine and
    the storage's hard state as last written. A storage may save commit late or not at all, but never ahead of the
    entries it covers: what lies at those indexes may be a suffix still to be overwritten.
    An InvariantViolation ends the node.
    """

    def __init__(self, config: Config) -> None:
        self.raft = Raft(config)
        self._soft = (self.raft.leader, self.raft.role)
        self._hard = self.raft.hard_state()
        self._hard_given = self._hard
        self._outstanding: Ready | None = None
        self._told_round = 0
        self._peers = frozenset(self.raft.peers)

    # -- feeding

    def tick(self) -> None:
        self.raft.tick()

    def campaign(self) -> str:
        """Stand for election now. Returns why not, or an empty string."""
        refusal = self.raft.campaign_refusal()
        if not refusal:
            self.raft.start_campaign()
        return refusal

    def step(self, message: Message) -> None:
        """Handle a message from another member. Raises MessageRefused for one that must not be handled here."""
        if message.type in LOCAL_TYPES:
            raise MessageRefused(f"{message.type.name} may not come from another member")
        if message.to != self.raft.id:
            raise MessageRefused(f"{message.type.name} for {message.to} reached {self.raft.id}")
        if message.from_ not in self._peers:
            raise MessageRefused(f"{message.type.name} from {message.from_}, which is not another voter")
        self.raft.step(message)

    def propose(self, data: bytes) -> int:
        """Append one command. Returns its index: it is committed if the entry applied there has the term that
        status or `term` shows now, and lost if another term's entry is applied there. Raises ProposalDropped."""
        return self.propose_batch([data])

    def propose_batch(self, batch: list[bytes]) -> int:
        """Append several commands, all or none. Returns the first's index; they are consecutive."""
        if not batch or not all(batch):
            raise ValueError("a batch has at least one command, and a command has at least one byte")
        return self.raft.propose(batch)

    def read_index(self, context: bytes) -> None:
        """Ask for a linearizable read. Its answer is a ReadState with the same context in a later Ready.

        context must be unique among this node's reads, and across nodes (put the node's id in it). There may be
        no answer when messages are lost: retry with a new context. Raises ReadDropped when no leader is known.
        """
        self.raft.read_index(ReadRequest(self.raft.id, context))

    def step_down(self, reason: str, quiet_ticks: int) -> None:
        """Give up leadership or candidacy at once and do not campaign for quiet_ticks. It still votes and follows.

        For a node whose controllers are dead: it keeps its copy, but must not keep the lead. A leader names the
        member that lacks least of the log, which stands at once; if that word is lost, the others elect after their
        election timeout. Calling it again renews the quiet time.
        """
        self.raft.step_down(reason, quiet_ticks)

    # -- working

    def has_ready(self) -> bool:
        r = self.raft
        return bool(
            r.msgs
            or r.log.unstable
            or r.append_due
            or r.read_states
            or r.dropped_reads
            or (r.rounds is not None and r.rounds.waits_for_round())
            # A single voter's rounds send nothing, but their times must be noted all the same.
            or (r.rounds is not None and r.rounds.round != self._told_round)
            or (r.leader, r.role) != self._soft
            or r.log.has_next_committed()
            or self._hard_changed()
        )

    def ready(self) -> Ready:
        r = self.raft
        if self._outstanding is not None:
            raise InvariantViolation("ready() before the last Ready's advance()")
        if r.rounds is not None and r.rounds.waits_for_round():
            r.broadcast_heartbeat()  # one round for all reads of this turn
        if r.append_due:
            r.flush_appends()
        rd = Ready(
            entries=r.log.unstable[:],
            committed_entries=r.log.next_committed(),
            messages=r.msgs,
            read_states=r.read_states,
            dropped_reads=r.dropped_reads,
            early_allowed=r.config.self_ack == "after_persist",
        )
        if (r.leader, r.role) != self._soft:
            rd.soft_state = r.soft_state()
            self._soft = (r.leader, r.role)
        hard = self._hard
        if self._hard_changed():
            rd.hard_state = hard = r.hard_state()
        rd.must_sync = bool(rd.entries) or hard.term != self._hard.term or hard.vote != self._hard.vote
        if r.rounds is not None and r.rounds.round != self._told_round:
            rd.beat_round = self._told_round = r.rounds.round
        r.msgs, r.read_states, r.dropped_reads = [], [], []
        self._hard_given = hard
        self._outstanding = rd
        return rd

    def advance(self) -> None:
        """The last Ready is written, sent and applied."""
        rd, self._outstanding = self._outstanding, None
        if rd is None:
            raise InvariantViolation("advance() without a Ready")
        self._hard = self._hard_given
        r = self.raft
        if rd.committed_entries:
            r.log.applied_to(rd.committed_entries[-1].index)
            r.release_uncommitted(rd.committed_entries)
        if rd.entries:
            r.persisted(rd.entries[-1].index, rd.entries[-1].term)

    def take_urgent(self) -> list[Message]:
        """Heartbeats and the word to a successor made since the last Ready, to be sent although that Ready is still
        being written: a slow or full disk must cost a leader neither its followers nor its successor.

        They promise nothing about the own disk. Note the time as the send time of beat_round() before sending.
        Nothing is taken with self_ack on_append, where commit indexes may rest on the unwritten copy.
        """
        r = self.raft
        if r.config.self_ack != "after_persist" or not r.msgs:
            return []
        urgent = [m for m in r.msgs if m.type in URGENT]
        if urgent:
            r.msgs = [m for m in r.msgs if m.type not in URGENT]
            self._told_round = self.beat_round()
        return urgent

    def _hard_changed(self) -> bool:
        r, hard = self.raft, self._hard
        return r.log.committed != hard.commit or r.term != hard.term or r.vote != hard.vote

    # -- views

    @property
    def term(self) -> int:
        return self.raft.term

    @property
    def is_leader(self) -> bool:
        return self.raft.role is Role.LEADER

    @property
    def leader(self) -> int:
        """Id of the leader, 0 if none is known."""
        return self.raft.leader

    @property
    def commit_index(self) -> int:
        return self.raft.log.committed

    @property
    def applied_index(self) -> int:
        return self.raft.log.applied

    def is_settled_leader(self) -> bool:
        """Whether this node leads and has applied an entry of its own term, and so everything earlier leaders
        committed: before that, decisions would be made on an old state."""
        r = self.raft
        return r.role is Role.LEADER and r.log.term(r.log.applied) == r.term

    def hard_state(self) -> HardState:
        return self.raft.hard_state()

    def beat_round(self) -> int:
        """Number of the newest heartbeat round started. Rises by one per round over the life of this object."""
        rounds = self.raft.rounds
        return rounds.round if rounds is not None else 0

    def quorum_acked_round(self) -> int:
        """The newest heartbeat round of this leadership that a quorum has answered; 0 if none, or not leading.

        The quorum lease: no other leader can be elected until (election_ticks - 1) tick periods after the time
        noted for round n (Ready.beat_round), because each member of the quorum ignores campaigns for that long
        from when it heard the round (check_quorum), also over a restart (lease_after_restart). Members' clocks
        drift, so a driver takes 0.7 of election_ticks. Appends do not count as rounds: heartbeats keep their
        rate under load, and an append is answered only after the member's disk. A single voter's round is
        acknowledged when it starts.
        """
        rounds = self.raft.rounds
        if rounds is None or self.raft.role is not Role.LEADER:
            return 0
        return rounds.acked_round

    def may_serve_lease_reads(self) -> bool:
        """Whether this leader knows all commits of earlier terms; with a live quorum lease it may then read."""
        return self.raft.role is Role.LEADER and self.raft.own_term_committed()

    def status(self) -> Status:
        r = self.raft
        peers = {}
        if r.role is Role.LEADER:
            for member, p in r.tracker.progress.items():
                peers[member] = PeerStatus(
                    p.match, p.next, p.state, p.recent_active or member == r.id, len(p.inflights), p.paused()
                )
        return Status(
            id=r.id,
            role=r.role,
            leader=r.leader,
            term=r.term,
            vote=r.vote,
            commit=r.log.committed,
            applied=r.log.applied,
            last_index=r.log.last_index(),
            stable_index=r.log.stable_index(),
            quiet_ticks=r.quiet_ticks,
            step_down_reason=r.step_down_reason,
            progress=peers,
            quorum=r.quorum.describe(r.tracker.match_of) if peers else "",
        )
