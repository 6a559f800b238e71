"""Seeded event sequences.

Rates are drawn per run (swarm): a run that loses a third of its messages finds other bugs than one that loses none but
restarts often. Beside single random events there are moves: short sequences that lead to the rare situations (a leader
cut off with proposals of its own, a returning member, a restart in the middle of a write).
"""

from __future__ import annotations

import random
from collections import Counter

from mesh.core.raft import NO_LIMIT, HardState, InvariantViolation, Message, MsgType, Role
from mesh.core.raft.config import EtcdOptions
from mesh.core.raft.message import TRANSFER
from tests.oracle.mirror import Mirror, RunConfig

MIN_EVENTS = 50  # other than ticks, in every run

# Our size of an entry equals etcd's encoded size while index and term take one byte (see entry_bytes), so that message
# limits bite at the same entry in both.
MAX_INDEX = 120


class RunStopped(Exception):
    """The core raised an InvariantViolation; the run's last line says so."""


def draw_config(rng: random.Random) -> RunConfig:
    election = rng.choice((3, 5, 8))
    return RunConfig(
        members=rng.choices((1, 3, 5), (1, 12, 7))[0],
        election_ticks=election,
        heartbeat_ticks=rng.choice((1, 2)),
        pre_vote=rng.random() < 0.8,
        check_quorum=rng.random() < 0.7,
        max_msg_bytes=rng.choice((0, 25, 60, NO_LIMIT, NO_LIMIT)),
        max_inflight=rng.choice((1, 2, 4, 256)),
        max_uncommitted_bytes=rng.choice((12, 40, NO_LIMIT, NO_LIMIT, NO_LIMIT)),
    )


class Schedule:
    """One run: makes events, applies each to our core at once, and keeps the driver's commands and expected lines."""

    def __init__(self, seed: int, options: EtcdOptions | None) -> None:
        self.rng = rng = random.Random(seed)
        self.config = draw_config(rng)
        self.mirror = Mirror(self.config, seed, options)
        self.commands = [self.config.command()]
        self.expected = ["run"]
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.ids = list(self.mirror.nodes)
        self.in_flight: list[int] = []
        self._seen = 0
        self.stopped = ""
        self.held: set[int] = set()
        self.cut: set[frozenset[int]] = set()
        self.hold_rate = rng.choice((0.0, 0.1, 0.4))
        self.drop_rate = rng.choice((0.0, 0.03, 0.15, 0.35))
        self.repeat_rate = rng.choice((0.0, 0.05, 0.2))
        self.shuffle_rate = rng.choice((0.0, 0.2, 0.7))
        self.crash_rate = rng.choice((0.0, 1.0, 3.0, 8.0))
        self.move_rate = rng.choice((2.0, 6.0, 12.0))
        self._next_data = 0

    # -- one event: the command, our answer, the counts

    def _record(self, command: str, line: str) -> None:
        self.commands.append(command)
        self.expected.append(line)
        new = range(self._seen, len(self.mirror.messages))
        self._seen = len(self.mirror.messages)
        self.in_flight.extend(new)
        for number in new:
            m = self.mirror.messages[number]
            if m.type is MsgType.PRE_VOTE_RESP and m.reject:
                self.counts["refused pre-votes"] += 1
            elif m.type is MsgType.VOTE_RESP and m.reject:
                self.counts["refused votes"] += 1
            elif m.type is MsgType.APP_RESP and m.reject:
                self.counts["refused appends"] += 1
        if self.mirror.options is not None:  # else there is no other core to compare with
            self.commands.append("a")
            self.expected.append(self.mirror.all_states())

    def _hold(self, node: int) -> bool:
        hold = self.rng.random() < self.hold_rate
        if hold:
            self.held.add(node)
        else:
            self.held.discard(node)
        return hold

    def _do(self, command: str, node: int, call: str, *args: object, tick: bool = False) -> str:
        self.events += not tick
        role, reads = self.mirror.nodes[node].raft.role, self.counts["read states"]
        try:
            line: str = getattr(self.mirror, call)(*args)
        except InvariantViolation as e:
            self._record(command, f"panic {e}")
            self.stopped = str(e)
            raise RunStopped(str(e)) from e
        self.counts["read states"] = reads + line.count(" read ")
        after = self.mirror.nodes[node].raft.role
        if role is Role.CANDIDATE and after is Role.FOLLOWER and call != "crash":
            self.counts["lost elections"] += 1
        elif role is Role.PRE_CANDIDATE and after is Role.FOLLOWER and call != "crash":
            self.counts["lost pre-elections"] += 1
        elif after is Role.LEADER and role is not Role.LEADER:
            self.counts["elections won"] += 1
        elif role is Role.LEADER and after is not Role.LEADER and call != "crash":
            self.counts["leaders deposed"] += 1
        self._record(command, line)
        return line

    def tick(self, node: int, count: int) -> None:
        """Ticks one at a time, because a campaign draws a new timeout that the driver must be told."""
        raft = self.mirror.nodes[node].raft
        for _ in range(count):
            timeout = raft.randomized_timeout
            hold = self._hold(node)
            self._do(f"t {node} {timeout} 1 {hold:d}", node, "tick", node, 1, hold, tick=True)

    def campaign(self, node: int) -> None:
        hold = self._hold(node)
        self._do(f"c {node} {hold:d}", node, "campaign", node, hold)

    def propose(self, node: int, count: int = 1) -> None:
        if self.mirror.nodes[node].raft.log.last_index() + count > MAX_INDEX:
            self.flush(node)
            return
        batch = []
        for _ in range(count):
            self._next_data += 1
            batch.append(f"d{self._next_data}" + "x" * self.rng.choice((0, 0, 6, 20)))
        hold = self._hold(node)
        line = self._do(
            f"p {node} {hold:d} {' '.join(batch)}", node, "propose", node, [b.encode() for b in batch], hold
        )
        self.counts["proposals dropped" if line.startswith("refused") else "proposals"] += 1

    def read(self, node: int) -> None:
        self._next_data += 1
        context = f"q{self._next_data}n{node}"
        hold = self._hold(node)
        self._do(f"r {node} {hold:d} {context}", node, "read", node, context.encode(), hold)
        self.counts["reads"] += 1

    def tell_to_stand(self, node: int, to: int) -> None:
        if (term := self.mirror.nodes[node].term) > 0:
            self._do(f"o {node} {to} {term}", node, "tell_to_stand", node, to)
            self.counts["told to stand"] += 1

    def flush(self, node: int) -> None:
        self.held.discard(node)
        self._do(f"y {node}", node, "flush", node)

    def deliver(self, number: int) -> None:
        message = self.mirror.messages[number]
        raft = self.mirror.nodes[message.to].raft
        doomed = self._conflicts(message)
        over_lease = message.term > raft.term and raft.in_lease()
        ignored = message.type is MsgType.PRE_VOTE and over_lease
        handed_over = message.type is MsgType.VOTE and over_lease and message.context == TRANSFER
        hold = self._hold(message.to)
        self._do(f"d {number} {hold:d}", message.to, "deliver", number, hold)
        if doomed is not None and raft.log.term(doomed.index) != doomed.term:
            self.counts["overwritten suffixes"] += 1
        self.counts["pre-votes ignored in lease"] += ignored
        self.counts["votes asked for over a lease"] += handed_over

    def _conflicts(self, message: Message) -> Message | None:
        """Our entry that this append would overwrite, as a message-like thing; None if there is none."""
        log = self.mirror.nodes[message.to].raft.log
        for entry in message.entries:
            if entry.index > log.last_index():
                return None
            if log.term(entry.index) != entry.term:
                return Message(message.type, message.to, index=entry.index, term=log.term(entry.index))
        return None

    def crash(self, node: int) -> None:
        """Of what was still to be written, a prefix survives: nothing, the hard state, and then some entries."""
        raft, disk = self.mirror.nodes[node].raft, self.mirror.disks[node]
        unwritten = raft.log.unstable
        survives = self.rng.choice(("nothing", "hard state", "prefix", "all"))
        kept = {"prefix": self.rng.randint(0, len(unwritten)), "all": len(unwritten)}.get(survives, 0)
        entries = unwritten[:kept]
        hard: HardState | None = None
        if survives != "nothing":
            # A commit index may be saved only with the entries it covers: what the disk still holds in their
            # place may be a suffix that they overwrite.
            end = raft.log.stable_index() + kept
            hard = HardState(raft.term, raft.vote, min(raft.log.committed, end))
        lost = len(unwritten) - kept
        self.counts["restarts"] += 1
        if lost or (raft.hard_state() != disk.hard_state and hard is None):
            self.counts["restarts after a torn or lost write"] += 1
        self.held.discard(node)
        if hard is None:
            command = f"x {node} 0 0 0 0 0"
        else:
            command = f"x {node} 1 {hard.term} {hard.vote} {hard.commit} {kept}"
        self._do(command, node, "crash", node, hard, entries)

    # -- the network

    def connected(self, m: Message) -> bool:
        return frozenset((m.to, m.from_)) not in self.cut

    def isolate(self, group: set[int]) -> None:
        """Cut every link between group and the rest."""
        self.cut |= {frozenset((a, b)) for a in group for b in self.ids if b not in group}

    def pass_message(self) -> None:
        """Deliver, drop or repeat one message."""
        if not self.in_flight:
            return
        at = self.rng.randrange(len(self.in_flight)) if self.rng.random() < self.shuffle_rate else 0
        number = self.in_flight[at]
        if not self.connected(self.mirror.messages[number]) or self.rng.random() < self.drop_rate:
            self.in_flight.pop(at)
            self.counts["messages lost"] += 1
            return
        if self.rng.random() >= self.repeat_rate:
            self.in_flight.pop(at)
        else:
            self.counts["messages repeated"] += 1
        self.deliver(number)

    def exchange(self, messages: int) -> None:
        for _ in range(messages):
            self.pass_message()

    # -- moves

    def leader(self) -> int:
        """The leader of the highest term, or any node."""
        leaders = [i for i in self.ids if self.mirror.nodes[i].is_leader]
        if not leaders:
            return self.rng.choice(self.ids)
        return max(leaders, key=lambda i: self.mirror.nodes[i].term)

    def time_out(self, node: int) -> None:
        raft = self.mirror.nodes[node].raft
        self.tick(node, max(1, raft.randomized_timeout - raft.election_elapsed))

    def move_elect(self) -> None:
        node = self.rng.choice(self.ids)
        if self.config.check_quorum:  # voters ignore campaigns until they have missed their leader for long enough
            for other in self.ids:
                if other != node and self.rng.random() < 0.8:
                    raft = self.mirror.nodes[other].raft
                    self.tick(other, max(0, self.config.election_ticks - raft.election_elapsed))
        self.time_out(node)
        self.exchange(self.rng.randint(2, 12))

    def move_cut_off_leader(self) -> None:
        """The leader goes on alone with entries that will be overwritten, and comes back."""
        old = self.leader()
        self.isolate({old})
        for _ in range(self.rng.randint(1, 3)):
            self.propose(old, self.rng.choice((1, 1, 2)))
        self.move_elect()
        self.exchange(10)
        self.propose(self.leader())
        self.exchange(6)
        self.cut.clear()
        self.tick(self.leader(), self.config.heartbeat_ticks)
        self.exchange(8)

    def move_rivals(self) -> None:
        """Several stand at once."""
        for node in self.rng.sample(self.ids, min(len(self.ids), self.rng.choice((2, 2, 3)))):
            if self.rng.random() < 0.6:
                self.campaign(node)
            else:
                self.time_out(node)
        self.exchange(self.rng.randint(4, 14))

    def move_flapping_member(self) -> None:
        """A member is cut off past its timeout and returns while the others work on."""
        node = self.rng.choice(self.ids)
        self.isolate({node})
        self.time_out(node)
        self.propose(self.leader())
        self.exchange(6)
        self.cut.clear()
        self.time_out(node)
        self.exchange(10)

    def move_torn_write(self) -> None:
        """A member dies between taking entries and having them on disk."""
        rate, self.hold_rate = self.hold_rate, 1.0
        self.propose(self.leader(), self.rng.randint(1, 3))
        self.exchange(self.rng.randint(0, 3))
        self.hold_rate = rate
        victims = [i for i in self.ids if self.mirror.nodes[i].raft.log.unstable]
        self.crash(self.rng.choice(victims or self.ids))

    def move_read(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.read(self.rng.choice((self.leader(), self.rng.choice(self.ids))))
        self.exchange(self.rng.randint(0, 12))

    def move_hand_over(self) -> None:
        """Somebody is told to stand while the leader was heard a moment ago; now and then by one who leads no more."""
        old = self.leader() if self.rng.random() < 0.8 else self.rng.choice(self.ids)
        others = [i for i in self.ids if i != old]
        if others:
            self.tick(old, self.config.heartbeat_ticks)
            self.exchange(self.rng.randint(0, 4))
            self.tell_to_stand(old, self.rng.choice(others))
            self.exchange(self.rng.randint(2, 12))

    # -- the run

    def random_event(self) -> None:
        rng = self.rng
        moves = [
            (40.0, lambda: self.exchange(rng.randint(1, 4))),
            (8.0, lambda: self.tick(rng.choice(self.ids), rng.randint(1, 2))),
            (3.0, lambda: self.tick(self.leader(), self.config.heartbeat_ticks)),
            (8.0, lambda: self.propose(self.leader(), rng.choice((1, 1, 1, 2, 4)))),
            (1.0, lambda: self.propose(rng.choice(self.ids))),
            (1.0, lambda: self.campaign(rng.choice(self.ids))),
            (5.0, self.move_read),
            (4.0, lambda: self.flush(rng.choice(self.ids))),
            (1.0, lambda: self.isolate(set(rng.sample(self.ids, len(self.ids) // 2)))),
            (2.0, self.cut.clear),
            (self.crash_rate, lambda: self.crash(rng.choice(self.ids))),
            (self.crash_rate, self.move_torn_write),
            (self.move_rate, self.move_elect),
            (self.move_rate, self.move_cut_off_leader),
            (self.move_rate / 2, self.move_rivals),
            (self.move_rate / 2, self.move_flapping_member),
            (self.move_rate / 2, self.move_hand_over),
        ]
        rng.choices([m for _, m in moves], [w for w, _ in moves])[0]()

    def run(self) -> None:
        wanted = MIN_EVENTS + self.rng.randint(10, 150)
        try:
            self.time_out(self.rng.choice(self.ids))
            self.exchange(12)
            while self.events < wanted:
                self.random_event()
            self.settle()
        except RunStopped:
            self.counts["stopped by an invariant"] += 1
        self.counts["events"] += self.events

    def calm(self) -> None:
        """A network without faults and clocks that all tick, for several election timeouts."""
        self.cut.clear()
        self.drop_rate = self.repeat_rate = self.hold_rate = self.shuffle_rate = 0.0
        for _ in range(6 * self.config.election_ticks):
            for node in self.ids:
                self.tick(node, 1)
            while self.in_flight:
                self.pass_message()

    def settle(self) -> None:
        """Heal, elect somebody, replicate, read: a run ends in the middle of life, not of a fault."""
        self.cut.clear()
        self.drop_rate = 0.0
        self.move_elect()
        self.propose(self.leader())
        self.exchange(10)
        self.tick(self.leader(), self.config.heartbeat_ticks)
        self.read(self.leader())
        self.exchange(12)
