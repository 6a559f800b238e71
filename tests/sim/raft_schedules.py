"""Figure 8 of the Raft paper, step by step, on the simulated disks and network."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.loop import MS, Loop, S
from tests.sim.network import LinkRates
from tests.sim.raft_world import RaftWorld
from tests.sim.voter import DiskRates, SimVoter, Timers

FOR_EVER = 10_000


class Figure8:
    """a leads and gives entry X to b alone. e leads a later term, writes one entry for itself alone. a leads again and
    gives X to c: X is on a majority. e leads again and overwrites X, which nobody may have called committed."""

    def __init__(self) -> None:
        loop = Loop(1)
        timers = Timers(max_msg_bytes=1)
        self.world = RaftWorld(loop, 5, LinkRates(base_ns=1 * MS), DiskRates(), timers)
        self.a, self.b, self.c, self.d, self.e = self.world.voters
        self._wait_ns = int(1.2 * timers.election_ns)
        self.world.start()

    def run(self) -> None:
        a, b, c, d, e = self.a, self.b, self.c, self.d, self.e
        self._elect(a, [b, c, d, e])
        self._until(lambda: all(v.applied == 1 for v in self.world.voters))
        self._only(a, b)
        self.world.propose(a)
        self._until(lambda: b.disk.durable.last_index() == 2)
        a.crash()
        self._elect(e, [c, d], alone_once_it_stands=True)
        e.crash()
        a.start()
        self._elect(a, [b, c])
        self._until(lambda: c.disk.view.last_index() == 2)
        self._cut(a, outward=True)
        self.world.loop.run_until(self.world.loop.now + 20 * MS)
        a.crash()
        e.start()
        self._elect(e, [c, d])

    def _elect(self, candidate: SimVoter, voters: list[SimVoter], alone_once_it_stands: bool = False) -> None:
        """Once no lease holds any more, let it stand, with these connected and everyone else cut off."""
        self.world.network.heal()
        for voter in self.world.running():
            voter.node.step_down("the schedule says so", quiet_ticks=FOR_EVER)
        for voter in self.world.voters:
            if voter is not candidate and voter not in voters:
                self._cut(voter, outward=True, inward=True)
        self.world.loop.run_until(self.world.loop.now + self._wait_ns)
        term = candidate.node.term
        candidate.node.raft.quiet_ticks = 0
        assert candidate.node.campaign() == ""
        candidate.pump()
        self._until(lambda: candidate.node.term > term and candidate.disk.durable.hard_state.term > term)
        if alone_once_it_stands:
            self._cut(candidate, outward=True)
        self._until(lambda: candidate.node.is_leader)

    def _only(self, one: SimVoter, other: SimVoter) -> None:
        for voter in self.world.voters:
            if voter not in (one, other):
                self._cut(voter, outward=True, inward=True)

    def _cut(self, voter: SimVoter, outward: bool = False, inward: bool = False) -> None:
        for other in self.world.voters:
            if outward and other is not voter:
                self.world.network.cut(voter.host, other.host)
            if inward and other is not voter:
                self.world.network.cut(other.host, voter.host)

    def _until(self, done: Callable[[], bool]) -> None:
        loop = self.world.loop
        assert loop.run_until(loop.now + 2 * S, done), f"the schedule does not come off\n{loop.last_events()}"


def figure_8() -> None:
    Figure8().run()
