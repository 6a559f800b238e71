"""A mesh without random faults, for schedules written by hand. Everything the invariants watch is watched here too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.states import ISOLATION_STOP, NODE_READY
from tests.sim.loop import MS, Loop, S
from tests.sim.mesh_voter import MeshVoter
from tests.sim.mesh_world import Client, MeshWorld, Node, document, service
from tests.sim.network import LinkRates
from tests.sim.task import Program

FOREVER = Program(runs_ns=10_000 * S, exit_code=0, on_term_ns=50 * MS)
DEAF = Program(runs_ns=10_000 * S, exit_code=0, on_term_ns=None, grace_ns=1 * S)


def runs(seconds: float, exit_code: int = 0) -> Program:
    return Program(runs_ns=int(seconds * S), exit_code=exit_code, on_term_ns=50 * MS)


class Stage(MeshWorld):
    def __init__(self, hosts: int = 4, voters: int = 3, cards: int = 2, seed: int = 1) -> None:
        super().__init__(Loop(seed), hosts, voters, LinkRates(base_ns=1 * MS), cards=cards)
        self.client = Client(self)
        self.start()
        self.until(lambda: len(self.watch.nodes) == hosts and self.leader() is not None, 20, "every host registers")

    # -- time

    def until(self, done: Callable[[], bool], within_s: float, what: str) -> float:
        """Seconds it took. Fails with the last events when it does not come true in time."""
        began = self.loop.now
        assert self.loop.run_until(began + int(within_s * S), done), (
            f"not within {within_s} s: {what}\n{self.loop.last_events()}"
        )
        return (self.loop.now - began) / S

    def pass_s(self, seconds: float) -> None:
        self.loop.run_until(self.loop.now + int(seconds * S))

    def now_s(self) -> float:
        return self.loop.now / S

    # -- groups

    def submit(
        self,
        n_nodes: int,
        gpus: int,
        program: Program,
        isolation: str = ISOLATION_STOP,
        through: str = "",
        endless: bool = False,
        **training: Any,
    ) -> str:
        """Its id, once the mesh has answered. through: the host whose API is asked, any when not given; endless: as an
        inference group; training: more fields of the document."""
        body = document(f"g{len(self.client.groups)}", n_nodes, gpus, isolation)
        body["training"] |= training
        request = self.client.submit(service(body) if endless else body, program, through=through)
        self.until(lambda: request in self.client.groups, 20, "a submission is answered")
        return self.client.groups[request]

    def group(self, group_id: str) -> dict[str, Any]:
        return self.watch.groups[group_id]

    def is_(self, group_id: str, status: str, attempt: int | None = None) -> Callable[[], bool]:
        return lambda: (
            group_id in self.watch.groups
            and self.group(group_id)["status"] == status
            and attempt in (None, self.group(group_id)["attempt"])
        )

    def running(self, group_id: str, attempt: int = 1, within_s: float = 20) -> float:
        return self.until(self.is_(group_id, "running", attempt), within_s, f"attempt {attempt} of {group_id} runs")

    def ranks_of(self, group_id: str) -> list[Node]:
        return [self.node(name) for name in self.group(group_id)["nodes"]]

    # -- hosts

    def the_leader(self) -> MeshVoter:
        self.until(lambda: self.leader() is not None, 20, "there is a leader")
        leader = self.leader()
        assert leader is not None
        return leader

    def kill_leader(self, for_s: float = 8) -> None:
        """Its voter, which comes back after that; another one leads by then."""
        leader = self.the_leader()
        leader.crash()
        self.pass_s(for_s)
        self.node(leader.host).start_voter()
        self.the_leader()

    def isolate(self, name: str, inward: bool = True, outward: bool = True) -> None:
        for other in self.names:
            if other != name:
                if outward:
                    self.network.cut(name, other)
                if inward:
                    self.network.cut(other, name)

    def ready(self, name: str) -> Callable[[], bool]:
        return lambda: self.watch.nodes[name]["state"] == NODE_READY

    def lead_away_from(self, nodes: list[Node]) -> None:
        """Let a voter lead that shares no host with these."""
        names = [node.host.name for node in nodes]
        while (leader := self.the_leader()).host in names:
            leader.stop()
            self.until(lambda: any(v.node.is_leader and not v.paused for v in self.voters), 20, "another voter leads")
            leader.cont()
            self.pass_s(5)
