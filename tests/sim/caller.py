"""What an agent or a client knows of the voters: tries one after the other until an answer comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.loop import MS, Process, S
from tests.sim.mesh_voter import MeshVoter
from tests.sim.network import Network

RETRY_NS = 150 * MS
AVOID_NS = 10 * S
Answer = Callable[[dict[str, Any] | None], None]


class Caller:
    """Bound to one life of its process: what is under way when that ends is forgotten."""

    def __init__(self, process: Process, host: str, network: Network, voters: list[MeshVoter]) -> None:
        self._process, self.host, self._network = process, host, network
        near = [v for v in voters if v.host == host]
        far = [v for v in voters if v.host != host]
        process.loop.rng.shuffle(far)
        self._order = near + far
        self._left: dict[int, int] = {}  # voter -> when it was left
        self.overheard: dict[str, list[dict[str, Any]]] = {}

    def voter(self) -> MeshVoter:
        """The first that was not left lately; when all were, the one left longest ago."""
        now = self._process.loop.now
        for voter in self._order:
            if now - self._left.get(voter.raft_id, -AVOID_NS) >= AVOID_NS:
                return voter
        return min(self._order, key=lambda voter: self._left[voter.raft_id])

    def leave(self, voter: MeshVoter) -> None:
        self._left[voter.raft_id] = self._process.loop.now

    def ask(
        self,
        voter: MeshVoter,
        op: Callable[..., None],
        args: tuple[Any, ...],
        wait_ns: float,
        answer: Callable[[Any, str], None],
    ) -> None:
        """Once. answer(value, "") or answer(None, code); silence is the code `timeout`."""
        open_ = [True]

        def close(value: Any, code: str) -> None:
            if open_:
                open_.clear()
                if code:
                    self.leave(voter)
                answer(value, code)

        def come(value: Any, problem: Any) -> None:
            close(value, problem.code if problem is not None else "")

        voter.call(self._process, self.host, voter, op, args, come)
        self._process.after(wait_ns, close, None, "timeout")

    def propose(
        self, command: dict[str, Any], answer: Answer, tries: int, term: int | None = None, wait_ns: float = 3 * S
    ) -> None:
        """Only for commands that may be applied twice without harm. answer(None) when all tries failed."""

        def answered(value: Any, code: str) -> None:
            if not code:
                answer(value)
            elif tries <= 1:
                answer(None)
            else:
                pause = RETRY_NS * (0.5 + self._process.loop.rng.random())
                self._process.after(pause, self.propose, command, answer, tries - 1, term, wait_ns)

        voter = self.voter()
        if command["t"] in self.overheard:
            self.overheard[command["t"]].append(command)
        self.ask(voter, voter.op_propose, (command, term), wait_ns, answered)
