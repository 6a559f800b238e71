"""Whether the voters' states agree: each tells the others its hashes, equal indexes must have equal ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mesh.voter.machine import Machine

_logger = logging.getLogger("heteroflow.voter")


class Agreement:
    def __init__(self, machine: Machine, name: Callable[[int], str | None]) -> None:
        self._machine, self._name = machine, name
        self.alarm = ""
        self.compared = 0

    def report(self) -> list[list[Any]]:
        """[[index, state hash]...], newest last."""
        samples = [[index, state_hash] for index, state_hash in self._machine.samples]
        return [*samples, [self._machine.index, self._machine.state_hash]]

    def compare(self, peer: int, report: object) -> None:
        """Once they differ the alarm stays: no later agreement explains it away."""
        if not isinstance(report, list):
            return
        mine = dict(self.report())
        for item in report:
            if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], int) or item[0] not in mine:
                continue
            self.compared += 1
            if mine[item[0]] != item[1] and not self.alarm:
                self.alarm = (
                    f"the state at index {item[0]} differs from that of voter {self._name(peer) or peer}: "
                    "one of them computed something else from the same log; compare their versions, "
                    "then rebuild the wrong one by moving its state.db aside"
                )
                _logger.error("%s", self.alarm)
