"""One voter process: the product's RawNode under a driver that keeps its contract, on a simulated disk and network."""

from collections.abc import Callable
from dataclasses import dataclass

from mesh.core.raft import Config, Entry, Message, ProposalDropped, RawNode, ReadDropped, Ready
from tests.sim.disk import SimDisk
from tests.sim.loop import MS, Loop, Process, S
from tests.sim.network import Network
from tests.sim.raft_watch import RaftWatch


@dataclass(slots=True)
class DiskRates:
    sync_ns: int = 1 * MS
    stall: float = 0.0  # share of syncs that take a second
    crash: float = 0.0  # share of syncs during or right after which the voter dies


@dataclass(slots=True)
class Timers:
    """And the limits of messages: small ones make every entry travel alone, as big entries do."""

    tick_ns: int = 100 * MS
    heartbeat_ticks: int = 1
    election_ticks: int = 10
    max_msg_bytes: int = 256 * 1024
    max_inflight: int = 256

    @property
    def election_ns(self) -> int:
        return self.tick_ns * self.election_ticks


class SimVoter(Process):
    def __init__(
        self, loop: Loop, network: Network, watch: RaftWatch, raft_id: int, host: str, disk: SimDisk, timers: Timers,
        disk_rates: DiskRates,
    ) -> None:  # fmt: skip
        super().__init__(loop, f"v{raft_id}")
        self.network = network
        self.watch = watch
        self.raft_id = raft_id
        self.host = host
        self.disk = disk
        self.timers = timers
        self.disk_rates = disk_rates
        self.peers: dict[int, SimVoter] = {}
        self.on_sync_crash: Callable[[SimVoter], None] = lambda voter: None
        self.node: RawNode
        self.applied = 0
        self.sync_starts = 0
        self._writing: Ready | None = None
        self._reads: dict[bytes, tuple[int, Callable[[int], None]]] = {}
        self._ready_reads: list[tuple[int, Callable[[int], None]]] = []
        self._read_no = 0
        self._waiting: dict[int, tuple[int, Callable[[bool], None]]] = {}

    # -- life

    def start(self) -> None:
        self.begin()
        self._writing = None
        self._reads, self._ready_reads, self._waiting = {}, [], {}
        self.applied = self.restore()
        self.node = RawNode(
            Config(
                id=self.raft_id,
                storage=self.disk.view,
                rng=self.loop.rng,
                election_ticks=self.timers.election_ticks,
                heartbeat_ticks=self.timers.heartbeat_ticks,
                applied=self.applied,
                max_msg_bytes=self.timers.max_msg_bytes,
                max_inflight=self.timers.max_inflight,
            )
        )
        self.watch.stepped(self.raft_id, self.life, self.node)
        self.loop.trace(self.name, "up, term", self.node.term, "last", self.disk.view.last_index())
        self.after(self.timers.tick_ns * self.loop.rng.random(), self._tick)

    def crash(self) -> None:
        self.end()
        torn = self.disk.crash(self.loop.rng)
        self.watch.saved(self.raft_id)
        self.loop.trace(self.name, "crash", torn)

    def restore(self) -> int:
        """Index up to which the state machine of the next life has applied. The log alone is replayed here."""
        return 0

    # -- feeding

    def _tick(self) -> None:
        self.node.tick()
        self.pump()
        self.after(self.timers.tick_ns, self._tick)

    def receive(self, message: Message) -> None:
        self.node.step(message)
        self.pump()

    def propose(self, data: bytes, answer: Callable[[bool], None]) -> bool:
        """False if refused at once. `answer` is called when the index is applied: whether this command has it."""
        try:
            index = self.node.propose(data)
        except ProposalDropped:
            return False
        self._waiting[index] = (self.node.term, answer)
        self.pump()
        return True

    def read(self, acked: int, serve: Callable[[int], None]) -> bool:
        """A linearizable read: `serve` is called with the index once it has been applied here. It may never be.

        acked: the newest index that some client was answered for before this read was asked."""
        self._read_no += 1
        context = b"%d.%d.%d" % (self.raft_id, self.life, self._read_no)
        try:
            self.node.read_index(context)
        except ReadDropped:
            return False
        self._reads[context] = (acked, serve)
        self.pump()
        return True

    # -- working

    def pump(self) -> None:
        node = self.node
        self.watch.stepped(self.raft_id, self.life, node)
        while self._writing is None and node.has_ready():
            rd = node.ready()
            if rd.beat_round:
                self.beat_sent(rd.beat_round)
            early, late = rd.split_messages()
            self._send(early)
            rd.messages = late
            self._writing = rd
            if rd.entries or rd.hard_state is not None:
                if rd.entries:
                    self.watch.appended(self.raft_id, node, rd.entries)
                self.disk.begin(rd.entries, rd.hard_state)
                if rd.must_sync:
                    self._sync()
                    return
                self.disk.commit(sync=False)
            self._finish()

    def _sync(self) -> None:
        rates, rng = self.disk_rates, self.loop.rng
        delay = rates.sync_ns * (0.5 + rng.random())
        if rates.stall and rng.random() < rates.stall:
            delay += S
        self.after(delay, self._synced)
        if rates.crash and rng.random() < rates.crash:
            # During the write, just before its end, or just after what follows it was sent.
            when = rng.choice((delay * rng.random(), delay - 1, delay + 1))
            self.loop.push(self.loop.now + int(when), self, self.life, self.on_sync_crash, (self,))

    def _synced(self) -> None:
        self.disk.commit(sync=True)
        self.watch.saved(self.raft_id)
        self._finish()
        self.pump()

    def _finish(self) -> None:
        rd, self._writing = self._writing, None
        assert rd is not None
        self._send(rd.messages)
        for entry in rd.committed_entries:
            self.watch.applied(self.raft_id, entry)
            self.applied = entry.index
            self.apply(entry)
            self._settle(entry)
        for state in rd.read_states:
            asked = self._reads.pop(state.context, None)
            if asked is not None:
                self.watch.read(self.raft_id, state.index, asked[0])
                self._ready_reads.append((state.index, asked[1]))
        for context in rd.dropped_reads:
            self._reads.pop(context, None)
        if rd.soft_state is not None:
            self.role_changed()
        self.node.advance()
        self.watch.stepped(self.raft_id, self.life, self.node)
        if self._ready_reads:
            self._serve()

    def _send(self, messages: list[Message]) -> None:
        for message in messages:
            self.watch.sent(self.raft_id, message)
            peer = self.peers[message.to]
            self.network.send(self.host, peer.host, peer, peer.receive, message)

    def _settle(self, entry: Entry) -> None:
        waiting = self._waiting.pop(entry.index, None)
        if waiting is not None:
            term, answer = waiting
            if entry.term == term:
                self.watch.answered(entry.index, term)
            answer(entry.term == term)

    def _serve(self) -> None:
        waiting, self._ready_reads = self._ready_reads, []
        for index, serve in waiting:
            if index <= self.applied:
                serve(index)
            else:
                self._ready_reads.append((index, serve))

    # -- what a state machine adds

    def apply(self, entry: Entry) -> None: ...

    def beat_sent(self, number: int) -> None: ...

    def role_changed(self) -> None: ...
