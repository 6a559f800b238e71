"""Calls to the leader over the peer links, with numbers that tie answers to them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mesh.transport.peers import PeerLink
from mesh.voter.answers import Reply, no_leader, outcome_unknown, problem_from_wire
from schemas.errors import Problem

ANSWER_WITHIN_S = 12.0


@dataclass(slots=True)
class _Call:
    peer: int
    reply: Reply
    since: float


class Calls:
    """Every call is answered once: by the peer, or as unknown when its link or its time ends."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # Numbers must not come again after a restart: a late answer to an old call would answer a new one.
        self._number = secrets.randbits(48)
        self._open: dict[int, _Call] = {}

    def call(self, link: PeerLink, op: str, payload: bytes, reply: Reply, urgent: bool = False) -> None:
        self._number += 1
        if not link.call(self._number, op, payload, urgent):
            reply(None, no_leader())
            return
        self._open[self._number] = _Call(link.peer, reply, self._now())

    def answered(self, peer: int, number: int, value: Any, problem: Any) -> None:
        call = self._open.get(number)
        if call is None or call.peer != peer:
            return
        del self._open[number]
        call.reply(value, problem_from_wire(problem) if problem is not None else None)

    def fail(self, why: str, peer: int | None = None) -> None:
        """Answer as unknown all calls, or those to one peer."""
        self._end([n for n, call in self._open.items() if peer is None or call.peer == peer], outcome_unknown(why))

    def expire(self) -> None:
        limit = self._now() - ANSWER_WITHIN_S
        late = []
        for number, call in self._open.items():
            if call.since > limit:
                break
            late.append(number)
        self._end(late, outcome_unknown("the leader has not answered"))

    def _end(self, numbers: list[int], problem: Problem) -> None:
        for number in numbers:
            self._open.pop(number).reply(None, problem)
