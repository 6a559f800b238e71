"""A whole mesh: hosts with voters, agents, guards, shims and tasks, and clients that submit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from schemas.commands import command
from schemas.ids import make_group_id
from schemas.limits import PROFILES, Profile
from schemas.states import ISOLATION_KEEP, ISOLATION_STOP, NODE_READY, TERMINAL
from tests.sim.agent import ClaimRates, SimAgent
from tests.sim.caller import Caller
from tests.sim.controllers import SimControllers
from tests.sim.disk import SimDisk
from tests.sim.guard import SimGuard
from tests.sim.host import FIRST_WALL_MS, Host
from tests.sim.loop import MS, Loop, Process, S, Violation
from tests.sim.mesh_voter import MeshVoter
from tests.sim.mesh_watch import MeshWatch
from tests.sim.network import LinkRates, Network
from tests.sim.raft_watch import RaftWatch
from tests.sim.task import Program
from tests.sim.voter import DiskRates, Timers

MESH_TIMERS = Timers(tick_ns=200 * MS, heartbeat_ticks=1, election_ticks=6)
SETTLE_S = 300


@dataclass(slots=True)
class Node:
    """The processes of one host. `voter` is None on a host without one."""

    host: Host
    guard: SimGuard
    agent: SimAgent
    voter: MeshVoter | None
    up: bool = False

    def boot(self) -> None:
        self.up = True
        self.guard.start()
        self.start_agent()

    def start_agent(self) -> None:
        """The guard does it; the voter is the agent's child."""
        if self.up and not self.agent.alive:
            self.agent.start()
            self.start_voter()

    def start_voter(self) -> None:
        if self.agent.alive and self.voter is not None and not self.voter.alive:
            self.voter.start()

    def start_guard(self) -> None:
        if self.up and not self.guard.alive:
            self.guard.start()

    def kill_agent(self) -> None:
        self.agent.crash()
        if self.voter is not None and self.voter.alive:
            self.voter.crash()

    def power_off(self) -> None:
        self.up = False
        self.host.loop.trace(self.host.name, "power off")
        self.kill_agent()
        if self.voter is not None:
            self.voter.power_loss()
        self.guard.end()
        for task in self.host.tasks.values():
            task.power_loss()

    def change_disk(self, watch: MeshWatch) -> None:
        """While it is off: another host under the same name. A voter's disk must not be lost, and a rank told to keep
        running is only gone when somebody says so, which nobody here does."""
        held = [key.split("/")[1] for key in watch.holds if key.startswith(self.host.name + "/")]
        if self.voter is None and not any(watch.groups[g]["on_isolation"] == ISOLATION_KEEP for g in held):
            self.host.tasks.clear()
            self.host.lease_file[:] = bytes(len(self.host.lease_file))
            self.agent.uid = f"uid-{self.host.name}-{self.host.boots + 1}"
            self.host.loop.trace(self.host.name, "gets a new disk")

    def power_on(self) -> None:
        if not self.up:
            self.host.reboot()
            self.host.loop.trace(self.host.name, "boots")
            self.boot()


class MeshWorld:
    def __init__(
        self, loop: Loop, hosts: int, voters: int, link: LinkRates | None = None, disk: DiskRates | None = None,
        claims: ClaimRates | None = None, profile: Profile = PROFILES["fast"], cards: int = 2,
    ) -> None:  # fmt: skip
        self.loop = loop
        self.network = Network(loop, link or LinkRates())
        self.watch = MeshWatch(loop)
        self.programs: dict[str, Program] = {}
        self.is_calm = False
        ids = list(range(1, voters + 1))
        disks = {i: SimDisk(ids) for i in ids}
        self.raft_watch = RaftWatch(loop, disks)
        self.claims = claims or ClaimRates()
        self.names = [f"n{i}" for i in range(1, hosts + 1)]
        machines = [Host(loop, name, tuple(f"{name}-gpu{c}" for c in range(cards))) for name in self.names]
        self.voters = [
            MeshVoter(
                loop, self.network, self.raft_watch, i, machines[i - 1].name, disks[i], MESH_TIMERS, disk or DiskRates()
            )
            for i in ids
        ]
        self.nodes: list[Node] = []
        for at, machine in enumerate(machines):
            agent = SimAgent(machine, self.network, self.voters, self.watch, profile, self.programs, self.claims)
            voter = self.voters[at] if at < voters else None
            if voter is not None:
                voter.equip(machine, self.watch, profile)
                voter.peers = {v.raft_id: v for v in self.voters}
                agent.controllers = SimControllers(agent, voter)
            self.nodes.append(Node(machine, SimGuard(machine, self.watch), agent, voter))

    def drift(self, rng: Random) -> None:
        """Before the start: each host's clock at its own rate and date."""
        for node in self.nodes:
            rate = 1 + rng.uniform(-0.01, 0.01)
            node.host.rate = node.guard.rate = node.agent.rate = rate
            node.host.wall_offset_ms = rng.randint(-400_000, 400_000)
            if node.voter is not None:
                node.voter.rate = rate

    def start(self) -> None:
        for node in self.nodes:
            node.boot()

    def node(self, name: str) -> Node:
        return self.nodes[self.names.index(name)]

    def leader(self) -> MeshVoter | None:
        leaders = [v for v in self.voters if v.alive and not v.paused and v.node.is_leader]
        return max(leaders, key=lambda v: v.node.term) if leaders else None

    # -- after the faults

    def calm(self) -> None:
        self.is_calm = True
        self.network.heal()
        self.network.rates = LinkRates()
        self.claims.fail = self.claims.hang = 0.0
        self.claims.takes_ns = 50 * MS
        for group_id, program in self.programs.items():
            self.programs[group_id] = replace(program, runs_ns=1 * S)  # so that the queue drains
        for node in self.nodes:
            processes: list[Process] = [node.guard, node.agent, *node.host.tasks.values()]
            if node.voter is not None:
                node.voter.disk_rates = DiskRates()
                processes.append(node.voter)
            for process in processes:
                if process.paused:
                    process.cont()
            for task in node.host.tasks.values():
                task.ends_within(5 * S)
            node.power_on()
            node.start_guard()
            node.start_agent()
            node.start_voter()

    def settled(self) -> bool:
        return not self.unsettled()

    def unsettled(self) -> str:
        """What is not at rest yet, or nothing."""
        watch = self.watch
        waiting = [f"{g} is {row['status']}" for g, row in watch.groups.items() if row["status"] not in TERMINAL]
        lost = [f"{n} is {row['state']}" for n, row in watch.nodes.items() if row["state"] != NODE_READY]
        behind = [v.name for v in self.voters if not v.alive or v.applied < len(self.raft_watch.chosen)]
        alive = [task.name for tasks in watch.alive.values() for task in tasks.values()]
        return "; ".join(
            waiting + lost + [f"hold {h}" for h in watch.holds] + [f"{v} is behind" for v in behind] + alive
        )

    def settle(self) -> None:
        """After the faults every group comes to its end, or something is stuck."""
        loop = self.loop
        end = loop.now + SETTLE_S * S
        while loop.now < end:
            loop.run_until(loop.now + 1 * S)
            if self.settled():
                self.watch.nothing_lost()
                return
        raise Violation(f"liveness: {SETTLE_S} s after the faults there remain: {self.unsettled()}")

    def coverage(self) -> Counter[str]:
        return self.watch.counts + Counter(
            seeds=1,
            events=self.loop.events,
            commits=len(self.raft_watch.chosen),
            terms=len(self.raft_watch.leaders),
            expiries_proposed=sum(v.expiries_proposed for v in self.voters),
            lost_messages=self.network.lost,
            virtual_s=self.loop.now // S,
        )


class Client(Process):
    """Submits and stops groups with request ids, impatiently: it asks another voter while the first may still work."""

    def __init__(self, world: MeshWorld) -> None:
        super().__init__(world.loop, "client")
        self._world = world
        self._serial = 0
        self.groups: dict[str, str] = {}  # request id -> group, as answered
        self.begin()

    def submit(self, document: dict[str, Any], program: Program, tries: int = 40, through: str = "") -> str:
        """The request's id. through: the host that is asked first, any when not given."""
        self._serial += 1
        request = f"req-{self._serial}"
        self._try(request, document, program, tries, self._caller(through))
        return request

    def _caller(self, through: str = "") -> Caller:
        host = through or self.loop.rng.choice(self._world.names)
        return Caller(self, host, self._world.network, self._world.voters)

    def _try(self, request: str, document: dict[str, Any], program: Program, tries: int, caller: Caller) -> None:
        group_id = make_group_id(FIRST_WALL_MS, self.loop.rng.randbytes(7))
        self._world.programs[group_id] = replace(program, runs_ns=1 * S) if self._world.is_calm else program
        fields = command(
            "SubmitGroup",
            group_id=group_id,
            document=document,
            tenant="t",
            user="u",
            warnings=[],
            resubmit_of=None,
            request={"client": "c", "id": request, "digest": request},
        )

        def again() -> None:
            self._try(request, document, program, tries - 1, caller)

        self._send(fields, request, tries, caller, again)

    def stop_group(self, group_id: str) -> None:
        self._ask("StopGroup", group_id=group_id, by="u")

    def delete_group(self, group_id: str) -> None:
        self._ask("DeleteGroup", group_id=group_id)

    def order(self, name: str, **about: Any) -> None:
        """An operator's."""
        self._ask(name, **about)

    def _ask(self, name: str, tries: int = 40, **about: Any) -> None:
        self._serial += 1
        request = f"req-{self._serial}"
        fields = command(name, **about, request={"client": "c", "id": request, "digest": request})
        caller = self._caller()

        def once(left: int) -> None:
            self._send(fields, request, left, caller, lambda: once(left - 1))

        once(tries)

    def _send(self, fields: dict[str, Any], request: str, tries: int, caller: Caller, again: Any) -> None:
        def answered(value: Any, code: str) -> None:
            if not code:
                self._world.watch.answered(("c", request), value)
                if value["ok"] and fields["t"] == "SubmitGroup":
                    self.groups[request] = value["data"]["group_id"]
            elif tries > 1:
                self.after(self.loop.rng.uniform(50, 500) * MS, again)

        voter = caller.voter()
        caller.ask(voter, voter.op_propose, (fields, None), self.loop.rng.choice((300 * MS, 3 * S)), answered)


def document(
    name: str, n_nodes: int, per_node_gpu: int, isolation: str = ISOLATION_STOP, priority: str = "normal"
) -> dict[str, Any]:
    training = {"n_nodes": n_nodes, "per_node_gpu": per_node_gpu, "checkpoint_path": f"/ckpt/{name}"}
    about = {"name": name, "priority": priority, "on_isolation": isolation}
    return {**about, "task_type": "training", "training": training, "task": {"stop_grace_s": 5}}


def draw_program(rng: Random) -> Program:
    return Program(
        runs_ns=int(rng.choice((10, 30, 120)) * rng.uniform(0.3, 1) * S),
        exit_code=rng.choice((0, 0, 0, 0, 0, 7)),
        on_term_ns=rng.choice((None, 50 * MS, int(rng.uniform(0, 6) * S))),
        grace_ns=rng.choice((1, 5)) * S,
    )


def draw_document(rng: Random, number: int, hosts: int) -> dict[str, Any]:
    isolation = ISOLATION_KEEP if rng.random() < 0.1 else ISOLATION_STOP
    priority = rng.choice(("normal", "normal", "high", "highest"))
    drawn = document(f"g{number}", rng.randint(1, min(3, hosts)), rng.randint(0, 2), isolation, priority)
    if rng.random() < 0.5:
        del drawn["training"]["checkpoint_path"]
    if number % 4 == 3:
        drawn["training"] |= {"deadline_s": 20, "max_wait_s": 60, "recovery": {"max_restarts": 1, "on": []}}
    return service(drawn) if number % 6 == 5 else drawn


def service(drawn: dict[str, Any]) -> dict[str, Any]:
    """The same shape as an inference group, which whatever its program does is built again."""
    training = drawn["training"]
    about = {name: value for name, value in drawn.items() if name != "training"}
    task = {**drawn["task"], "gpu_required": training["per_node_gpu"], "ports": {"http": 8000}}
    return {**about, "task_type": "inference", "inference": {"n_nodes": training["n_nodes"]}, "task": task}
