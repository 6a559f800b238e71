"""The contract of card adapters: which cards this host may give to tasks, and what ails it where it may not.

`tests/contract/test_gpu.py` is the contract.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentd.core.telemetry_blob import CardNow


class GpuSetupRefused(Exception):
    """The --gpus setting makes no sense or cannot be had: what, why, what to do."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """uuid names the card over restarts and slot changes; index is where it is now, for people only."""

    uuid: str
    type: str
    memory_mb: int
    index: int


class GpuAdapter(Protocol):
    @property
    def backend(self) -> str:
        """As in the node row: simulated, nvml, none."""

    def inventory(self) -> Sequence[Gpu]:
        """The cards that can be used now, by index. May block for seconds where a driver is sick: not on a loop."""

    @property
    def faults(self) -> Mapping[str, str]:
        """Cards seen before that cannot be used now: uuid -> why. As of the last inventory."""

    @property
    def state(self) -> str:
        """One sentence for people, as of the last inventory."""

    def sample(self, cpu_percent: Mapping[str, float | None]) -> Sequence[CardNow]:
        """Every usable card as it is now; what cannot be read is None, never 0. May block as `inventory` does.

        cpu_percent: of one core, used for each card by the task that holds it; None where that is not known. Only
        simulated cards look at it: what their task computes is their utilisation."""

    def close(self) -> None: ...
