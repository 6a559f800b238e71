"""One seed of a whole mesh: a minute of faults, then calm, then everything must come to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from schemas.states import PAUSED, PAUSING, TERMINAL
from schemas.task_types import ENDLESS
from tests.sim.agent import ClaimRates
from tests.sim.faults import Partitions, disk_rates, draw, link_rates
from tests.sim.loop import MS, Loop, Process, S
from tests.sim.mesh_world import Client, MeshWorld, Node, draw_document, draw_program
from tests.sim.voter import SimVoter

FAULTY_S = 60


class MeshFaults:
    """Every second each host draws its troubles. Guard and shims are never stopped both: one of the two fences."""

    def __init__(self, loop: Loop, world: MeshWorld, partitions: Partitions, steady: bool) -> None:
        """steady: only single hosts are cut off or stopped, so that a leader stands long enough to give them up."""
        rng = loop.rng
        self._loop, self._world, self._partitions = loop, world, partitions
        self.power = draw(rng, 0.001, 0.02, absent=0.4)
        self.blackout = draw(rng, 0.002, 0.02, absent=0.8)
        self.agent = draw(rng, 0.002, 0.1)
        self.voter = draw(rng, 0.002, 0.1)
        self.guard = draw(rng, 0.002, 0.05, absent=0.5)
        self.pause_agent = draw(rng, 0.002, 0.03, absent=0.4)
        self.pause_voter = draw(rng, 0.002, 0.05, absent=0.4)
        self.pause_fencer = draw(rng, 0.005, 0.1, absent=0.5)
        self.cut = draw(rng, 0.01, 0.1, absent=0.3)
        self.isolate = draw(rng, 0.02, 0.1, absent=0.3)
        self.wall = draw(rng, 0.01, 0.1, absent=0.5)
        self.never_restart = rng.random() < 0.2
        if steady:
            self.power = self.voter = self.pause_voter = self.cut = 0.0
            self.isolate = 0.15
        self.counts: Counter[str] = Counter()
        self._fencer_stopped: set[str] = set()
        self._on = False
        for voter in world.voters:
            voter.on_sync_crash = self._kill_voter

    def begin(self) -> None:
        self._on = True
        self._loop.after(1 * S, self._round)

    def end(self) -> None:
        self._on = False

    def _round(self) -> None:
        if not self._on:
            return
        for node in self._world.nodes:
            self._meet(node)
        if self._hit(self.blackout):
            self.counts["blackouts"] += 1
            for node in self._world.nodes:
                self._power_off(node)
        if self._hit(self.cut):
            self._partitions.cut(self._loop.rng.choice((5, 20, 40)) * S)
            self.counts["partitions"] += 1
        elif self._hit(self.isolate) and not self._partitions.active:
            self._partitions.cut(60 * S, hosts=1)
            self.counts["isolations"] += 1
        self._loop.after(1 * S, self._round)

    def _hit(self, share: float) -> bool:
        return self._loop.rng.random() < share

    def _meet(self, node: Node) -> None:
        rng = self._loop.rng
        if not node.up:
            return
        if self._hit(self.power):
            self._power_off(node)
            return
        if self._hit(self.agent) and node.agent.alive:
            self.counts["agents killed"] += 1
            node.kill_agent()
            self._later(rng.choice((2, 2, 2, 40)) * rng.uniform(0.1, 1), self._agent_back, node)
        if node.voter is not None and self._hit(self.voter):
            self._kill_voter(node.voter)
        if self._hit(self.guard) and node.guard.alive and node.host.name not in self._fencer_stopped:
            self.counts["guards killed"] += 1
            node.guard.end()
            self._fencer_stopped.add(node.host.name)
            self._loop.after(rng.uniform(0.1, 20) * S, self._guard_back, node, node.host.boots)
        if self._hit(self.pause_agent):
            self._pause(node.agent, rng.choice((2, 20, 40)))
        if node.voter is not None and self._hit(self.pause_voter):
            self._pause(node.voter, rng.choice((2, 5, 20)))
        if self._hit(self.pause_fencer):
            self._stop_fencer(node)
        if self._hit(self.wall):
            node.host.wall_offset_ms += rng.choice((-86_400_000, -3_000, 3_000, 600_000))

    def _later(self, seconds: float, fn: Callable[..., object], *args: object) -> None:
        if not self.never_restart:
            self._loop.after(seconds * S, fn, *args)

    def _power_off(self, node: Node) -> None:
        if node.up:
            self.counts["power losses"] += 1
            node.power_off()
            if self._hit(0.3):
                node.change_disk(self._world.watch)
            self._loop.after(self._loop.rng.expovariate(1) * 10 * S, self._power_on, node)

    def _power_on(self, node: Node) -> None:
        self._fencer_stopped.discard(node.host.name)
        node.power_on()

    def _agent_back(self, node: Node) -> None:
        if node.guard.alive:
            node.start_agent()

    def _guard_back(self, node: Node, boots: int) -> None:
        if node.host.boots == boots:
            self._fencer_stopped.discard(node.host.name)
            node.start_guard()
            if not self.never_restart:
                node.start_agent()

    def _kill_voter(self, voter: SimVoter) -> None:
        if self._on and voter.alive:
            self.counts["voters killed"] += 1
            voter.crash()
            node = self._world.node(voter.host)
            self._loop.after(self._loop.rng.uniform(0.1, 3) * S, node.start_voter)

    def _pause(self, process: Process, up_to_s: float) -> None:
        if process.alive and not process.paused:
            self.counts["pauses"] += 1
            process.stop()
            self._loop.trace(process.name, "stopped")
            self._loop.after(self._loop.rng.random() * up_to_s * S, self._cont, process, process.life)

    def _stop_fencer(self, node: Node) -> None:
        """Either the guard or the shims of all tasks, for up to 20 s."""
        name = node.host.name
        if name in self._fencer_stopped or not node.guard.alive:
            return
        rng = self._loop.rng
        self._fencer_stopped.add(name)
        stopped: list[Process] = [node.guard]
        if rng.random() < 0.5:
            stopped = [task for task in node.host.tasks.values() if task.running]
        for process in stopped:
            process.stop()
        self.counts["fencers stopped"] += 1
        self._loop.after(
            rng.random() * 20 * S, self._fencer_back, node, stopped, [p.life for p in stopped], node.host.boots
        )

    def _fencer_back(self, node: Node, stopped: list[Process], lives: list[int], boots: int) -> None:
        if node.host.boots == boots:
            self._fencer_stopped.discard(node.host.name)
        for process, life in zip(stopped, lives, strict=True):
            self._cont(process, life)

    def _cont(self, process: Process, life: int) -> None:
        if process.life == life and process.paused:
            self._loop.trace(process.name, "goes on")
            process.cont()


class Operator:
    """Takes nodes out of service and back, pauses groups and scheduling, and holds the mesh, in every fifth seed and by
    dice of its own: the other seeds run as they would without it."""

    def __init__(self, seed: int, world: MeshWorld, client: Client) -> None:
        self._world, self._client = world, client
        self._rng = Random(seed)
        self.acts = seed % 5 == 3
        if self.acts:
            world.loop.after(4 * S, self._act)

    def _act(self) -> None:
        if self._world.is_calm:
            return
        rng, order = self._rng, self._client.order
        about: dict[str, Any] = {"node_id": rng.choice(self._world.names)}
        asked = {"by": "op", "reason": ""}
        how = {"mode": rng.choice(("wait", "move")), "deadline_s": rng.choice((0, 3, 10))}
        kind = rng.random()
        if kind < 0.3:
            order("DrainNode", **about, **how, **asked)
        elif kind < 0.6:
            order("UncordonNode", **about, by="op")
        elif kind < 0.7:
            window = {"from_ms": None, "in_s": rng.choice((0, 5)), "for_s": rng.choice((5, 15))}
            order("PlanMaintenance", **about, **window, **how, **asked)
        elif kind < 0.75:
            order("CordonNode", **about, **asked)
        elif kind < 0.8:
            order("PauseScheduling", **asked)
        elif kind < 0.88:
            order("ResumeScheduling", by="op")
        elif kind < 0.97:
            order("HoldMesh", for_s=rng.choice((3, 10, 30)), **asked)
        else:
            order("ReleaseHold", by="op")
        for name in ("PauseGroup", "PauseGroup", "ResumeGroup"):
            if self._client.groups and rng.random() < 0.3:
                order(name, group_id=rng.choice(sorted(self._client.groups.values())), by="op")
        self._world.loop.after(rng.expovariate(1.0) * 4 * S, self._act)

    def done(self) -> None:
        """Whatever is out of service comes back, and what is paused goes on; said again, as a copy of an order before
        it may still arrive."""
        if not self.acts:
            return
        self._world.loop.after(30 * S, self.done)
        for group_id, row in sorted(self._world.watch.groups.items()):
            if row["status"] in (PAUSING, PAUSED):
                self._client.order("ResumeGroup", group_id=group_id, by="op")
        self._client.order("ResumeScheduling", by="op")
        for node_id in self._world.names:
            self._client.order("CancelMaintenance", node_id=node_id, by="op")
            self._client.order("UncordonNode", node_id=node_id, by="op")


class Submissions:
    """A few groups, now one, now several at once; sometimes one is stopped."""

    def __init__(self, world: MeshWorld, client: Client, groups: int) -> None:
        self._world, self._client, self._left = world, client, groups
        self._period = FAULTY_S * S / groups
        self._number = 0
        world.loop.after(2 * S, self._act)

    def _act(self) -> None:
        rng = self._world.loop.rng
        for _ in range(min(self._left, rng.choice((1, 1, 1, 3)))):
            self._left -= 1
            self._number += 1
            self._client.submit(draw_document(rng, self._number, len(self._world.names)), draw_program(rng))
        if self._client.groups and rng.random() < 0.15:
            self._client.stop_group(rng.choice(sorted(self._client.groups.values())))
        if self._client.groups and rng.random() < 0.15:
            self._client.delete_group(rng.choice(sorted(self._client.groups.values())))
        for voter in self._world.voters:
            if voter.alive:
                voter.deliver(voter.life, voter.read, (self._world.raft_watch.acked, _nothing))
        if self._left:
            self._world.loop.after(rng.expovariate(1.0) * self._period, self._act)


def stop_services(world: MeshWorld, client: Client) -> None:
    """They end in no other way; said again, as some are still being built."""
    for group_id, row in sorted(world.watch.groups.items()):
        if row["task_type"] in ENDLESS and row["status"] not in TERMINAL:
            client.stop_group(group_id)
    world.loop.after(30 * S, lambda: stop_services(world, client))


def _nothing(index: int) -> None: ...


def run(seed: int, hashing: bool = False, loop: Loop | None = None) -> tuple[Loop, Counter[str]]:
    loop = loop or Loop(seed, hashing)
    rng = loop.rng
    link, disk = link_rates(rng), disk_rates(rng)
    disk.crash /= 10  # a mesh that never keeps a leader for a second shows nothing of what stands on it
    steady = rng.random() < 0.35
    link.drop /= 20 if steady else 2
    claims = ClaimRates(int(draw(rng, 10, 3000, absent=0) * MS), draw(rng, 0.01, 0.3), draw(rng, 0.01, 0.1, absent=0.6))
    voters = rng.choice((1, 3, 3, 5))
    world = MeshWorld(loop, max(voters, rng.randint(3, 6)), voters, link, disk, claims)
    world.drift(rng)
    partitions = Partitions(loop, world.network, world.names)
    faults = MeshFaults(loop, world, partitions, steady)
    world.start()
    client = Client(world)
    operator = Operator(seed, world, client)
    Submissions(world, client, rng.randint(3, 12))
    loop.run_until(5 * S)
    faults.begin()
    loop.run_until(FAULTY_S * S)
    faults.end()
    world.calm()
    operator.done()
    stop_services(world, client)
    world.settle()
    return loop, world.coverage() + faults.counts
