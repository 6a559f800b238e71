"""Swarm rates: every seed draws its own mix of faults, so that some seeds are rough in one way only."""

from random import Random

from tests.sim.loop import MS, Loop, S
from tests.sim.network import LinkRates, Network
from tests.sim.voter import DiskRates, SimVoter


def draw(rng: Random, low: float, high: float, absent: float = 0.3) -> float:
    """Nothing at all with probability `absent`, else between low and high with every magnitude alike."""
    if rng.random() < absent:
        return 0.0
    return float(low * (high / low) ** rng.random())


def link_rates(rng: Random) -> LinkRates:
    return LinkRates(
        drop=draw(rng, 0.005, 0.4),
        duplicate=draw(rng, 0.005, 0.2),
        base_ns=int(draw(rng, 0.2, 30, absent=0) * MS),
        slow=draw(rng, 0.005, 0.3),
        slow_ns=int(draw(rng, 50, 2000, absent=0) * MS),
    )


def disk_rates(rng: Random) -> DiskRates:
    return DiskRates(
        sync_ns=int(draw(rng, 0.2, 30, absent=0) * MS),
        stall=draw(rng, 0.002, 0.1, absent=0.5),
        crash=draw(rng, 0.001, 0.3, absent=0.4),
    )


class Partitions:
    """Cuts hosts into two sides, or one direction between two, and heals."""

    def __init__(self, loop: Loop, network: Network, hosts: list[str]) -> None:
        self._loop, self._network, self._hosts = loop, network, hosts
        self.count = 0
        self.active = False

    def cut(self, max_ns: int, hosts: int | None = None) -> None:
        """hosts: how many on the smaller side; any number when not given."""
        rng, network = self._loop.rng, self._network
        network.heal()
        self.active = True
        self.count += 1
        side = set(rng.sample(self._hosts, hosts or rng.randint(1, max(1, len(self._hosts) // 2))))
        others = [h for h in self._hosts if h not in side]
        inward, outward = rng.choice(((True, True), (True, True), (True, False), (False, True)))
        for a in sorted(side):
            for b in others:
                if outward:
                    network.cut(a, b)
                if inward:
                    network.cut(b, a)
        self._loop.trace("cut", sorted(side), "in" if inward else "", "out" if outward else "")
        self._loop.after(rng.random() * max_ns, self._heal, self.count)

    def _heal(self, number: int) -> None:
        if number == self.count:
            self.active = False
            self._network.heal()
            self._loop.trace("heal")


class VoterFaults:
    """Crashes and pauses of voters, drawn every `period`."""

    def __init__(self, loop: Loop, voters: list[SimVoter], partitions: Partitions, period_ns: int = S) -> None:
        rng = loop.rng
        self._loop, self._voters, self._partitions, self._period = loop, voters, partitions, period_ns
        self.crash = draw(rng, 0.001, 0.3)
        self.pause = draw(rng, 0.002, 0.15, absent=0.5)
        self.cut = draw(rng, 0.01, 0.4)
        self.crash_all = draw(rng, 0.002, 0.05, absent=0.6)
        self.down_ns = int(draw(rng, 50, 5000, absent=0) * MS)
        self.crashes = self.pauses = 0
        self._on = False
        for voter in voters:
            voter.on_sync_crash = self._crash

    def begin(self) -> None:
        self._on = True
        self._loop.after(self._period, self._round)

    def end(self) -> None:
        self._on = False

    def _round(self) -> None:
        if not self._on:
            return
        rng = self._loop.rng
        everyone = rng.random() < self.crash_all
        for voter in self._voters:
            if voter.alive and (everyone or rng.random() < self.crash):
                self._crash(voter)
            elif voter.alive and not voter.paused and rng.random() < self.pause:
                self.pauses += 1
                voter.stop()
                self._loop.trace(voter.name, "paused")
                self._loop.push(self._loop.now + int(rng.random() * 4 * S), None, 0, self._cont, (voter, voter.life))
        if rng.random() < self.cut:
            self._partitions.cut(8 * S)
        self._loop.after(self._period * (0.5 + rng.random()), self._round)

    def _crash(self, voter: SimVoter) -> None:
        if not self._on or not voter.alive:
            return
        self.crashes += 1
        voter.crash()
        self._loop.after(self._loop.rng.random() * 2 * self.down_ns, self._restart, voter)

    def _restart(self, voter: SimVoter) -> None:
        if not voter.alive:
            voter.start()

    def _cont(self, voter: SimVoter, life: int) -> None:
        if voter.life == life and voter.paused:
            self._loop.trace(voter.name, "continued")
            voter.cont()
