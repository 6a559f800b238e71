"""Voters alone: elections, replication and reads under hard faults, for a minute of virtual time."""

from collections import Counter

from tests.sim.disk import SimDisk
from tests.sim.faults import Partitions, VoterFaults, disk_rates, link_rates
from tests.sim.loop import Loop, S, Violation
from tests.sim.network import LinkRates, Network
from tests.sim.raft_watch import RaftWatch
from tests.sim.voter import DiskRates, SimVoter, Timers

FAULTY_S = 30
HEAL_S = 25


class RaftWorld:
    def __init__(self, loop: Loop, voters: int, link: LinkRates, disk: DiskRates, timers: Timers) -> None:
        self.loop = loop
        self.network = Network(loop, link)
        ids = list(range(1, voters + 1))
        self.disks = {i: SimDisk(ids) for i in ids}
        self.watch = RaftWatch(loop, self.disks)
        self.hosts = [f"h{i}" for i in ids]
        self.voters = [
            SimVoter(loop, self.network, self.watch, i, f"h{i}", self.disks[i], timers, disk) for i in ids
        ]  # fmt: skip
        for voter in self.voters:
            voter.peers = {v.raft_id: v for v in self.voters}
        self.proposed = self.answered = self.refused = self.reads = 0

    def start(self) -> None:
        for voter in self.voters:
            voter.start()

    def propose(self, voter: SimVoter) -> None:
        self.proposed += 1
        if not voter.propose(b"c%d" % self.proposed, self._answer):
            self.refused += 1

    def _answer(self, won: bool) -> None:
        self.answered += won

    def read(self, voter: SimVoter) -> None:
        """Asked now; a voter that is stopped hears of it when it goes on."""
        voter.deliver(voter.life, voter.read, (self.watch.acked, self._served))

    def _served(self, index: int) -> None:
        self.reads += 1

    def running(self) -> list[SimVoter]:
        return [v for v in self.voters if v.alive and not v.paused]

    def leader(self) -> SimVoter | None:
        """The running leader of the newest term."""
        leaders = [v for v in self.running() if v.node.is_leader]
        return max(leaders, key=lambda v: v.node.term) if leaders else None

    # -- after the faults

    def calm(self) -> None:
        self.network.heal()
        self.network.rates = LinkRates()
        for voter in self.voters:
            voter.disk_rates = DiskRates()
            if voter.paused:
                voter.cont()
            if not voter.alive:
                voter.start()

    def level(self) -> bool:
        """One leader, and everyone has applied all that is committed."""
        leader = self.leader()
        if leader is None or not leader.node.may_serve_lease_reads():
            return False
        last = len(self.watch.chosen)
        return all(v.applied == last and v.node.leader == leader.raft_id for v in self.voters)

    def coverage(self) -> Counter[str]:
        return Counter(
            seeds=1,
            events=self.loop.events,
            commits=len(self.watch.chosen),
            terms=len(self.watch.leaders),
            proposed=self.proposed,
            answered=self.answered,
            reads=self.watch.reads,
            overwritten=self.watch.overwritten,
            lost_messages=self.network.lost,
        )


class Workload:
    """Clients that pick any voter that thinks it leads, also a deposed one, and read anywhere."""

    def __init__(self, world: RaftWorld, period_ns: float) -> None:
        self._world, self._period = world, period_ns
        self._on = True
        self._next()

    def end(self) -> None:
        self._on = False

    def _next(self) -> None:
        if self._on:
            self._world.loop.after(self._world.loop.rng.expovariate(1.0) * self._period, self._act)

    def _act(self) -> None:
        world = self._world
        rng = world.loop.rng
        for voter in world.voters:
            if voter.alive and not voter.paused and voter.node.is_leader:
                for _ in range(rng.choice((1, 1, 1, 4))):
                    if voter.alive:
                        world.propose(voter)
        for voter in world.voters:
            if voter.alive and (voter.node.is_leader or rng.random() < 0.3):
                world.read(voter)
        self._next()


def run(seed: int, hashing: bool = False, loop: Loop | None = None) -> tuple[Loop, Counter[str]]:
    loop = loop or Loop(seed, hashing)
    rng = loop.rng
    timers = Timers(max_msg_bytes=rng.choice((1, 30, 256 * 1024)), max_inflight=rng.choice((1, 3, 256)))
    world = RaftWorld(loop, rng.choice((1, 3, 3, 5, 5)), link_rates(rng), disk_rates(rng), timers)
    for voter in world.voters:
        voter.rate = 1 + rng.uniform(-0.01, 0.01)
    partitions = Partitions(loop, world.network, world.hosts)
    faults = VoterFaults(loop, world.voters, partitions)
    world.start()
    faults.begin()
    workload = Workload(world, rng.choice((0.1, 0.3, 1.0)) * S)
    loop.run_until(FAULTY_S * S)
    faults.end()
    world.calm()
    loop.run_until(loop.now + 5 * S)
    workload.end()
    if not loop.run_until(loop.now + HEAL_S * S, world.level):
        raise Violation(f"liveness: {HEAL_S} s after the faults there is no leader with everyone level")
    coverage = world.coverage()
    coverage.update(crashes=faults.crashes, pauses=faults.pauses, partitions=partitions.count)
    return loop, coverage
