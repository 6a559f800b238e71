"""The controllers in the agent of the leader's host: the product's decide over the product's view, and the beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.core.control.decide import Memory, Now, decide
from mesh.core.control.view import View
from mesh.store.feed import FeedFilter
from schemas.limits import BEAT_PERIOD_MS
from tests.sim.loop import MS, S
from tests.sim.mesh_voter import MeshVoter

if TYPE_CHECKING:
    from tests.sim.agent import SimAgent


class SimControllers:
    """Lives and dies with its agent. It talks to the voter beside it only."""

    def __init__(self, agent: SimAgent, voter: MeshVoter) -> None:
        self._agent, self._voter = agent, voter

    def start(self) -> None:
        self._view = View()
        self._memory = Memory()
        self._term = 0
        self._led = False
        self._number = 0  # of this leadership, as far as these controllers have seen any
        self._polls = 0
        self._proposing = 0
        self._beat()

    def _beat(self) -> None:
        self._ask(self._voter.op_beat, (), self._beaten)
        self._agent.after(BEAT_PERIOD_MS * MS, self._beat)

    def _ask(self, op: Any, args: tuple[Any, ...], answer: Any) -> None:
        self._voter.call(self._agent, self._agent.machine.name, self._voter, op, args, answer)

    def _beaten(self, value: Any, problem: Any) -> None:
        led = value["leading"] and value["led"] == value["term"]
        if led and (not self._led or value["term"] != self._term):
            self._term, self._led = value["term"], True
            self._memory = Memory()
            self._number += 1
            self._proposing = 0
            self._poll(None, self._number)
        elif not led:
            self._led = False
            self._number += 1
        if self._led:
            self._decide()

    def _poll(self, after: int | None, number: int) -> None:
        if number == self._number:
            self._polls += 1
            self._ask(
                self._voter.op_feed, (FeedFilter("active"), after), lambda v, p: self._polled(number, after, v, p)
            )
            self._agent.after(5 * S, self._silent, self._polls, after, number)

    def _silent(self, polls: int, after: int | None, number: int) -> None:
        """The voter was restarted with the question."""
        if polls == self._polls:
            self._poll(after, number)

    def _polled(self, number: int, after: int | None, answer: Any, problem: Any) -> None:
        if number != self._number:
            return
        if problem is not None:
            self._agent.after(200 * MS, self._poll, after, number)
            return
        if isinstance(answer, dict):
            self._view.reset(_index(answer), [tuple(row) for row in answer["snapshot"]])
        else:
            for frame in answer:
                self._view.extend(_index(frame), frame["changes"])
        self._poll(self._view.idx, number)
        self._decide()

    def _decide(self) -> None:
        if not self._led or self._proposing:
            return
        host = self._agent.machine
        for command in decide(self._view, Now(host.now_ns() // MS, host.wall_ms()), self._memory):
            self._proposing += 1
            number = self._number
            self._ask(self._voter.propose_here, (command, self._term), lambda v, p, n=number: self._proposed(n, v))

    def _proposed(self, number: int, value: Any) -> None:
        if number != self._number:
            return
        self._proposing -= 1
        if value is not None:
            self._memory.caught_up = max(self._memory.caught_up, value["idx"])


def _index(frame: dict[str, Any]) -> int:
    return int(frame["token"].rpartition(".")[2])
