"""Cards that are not there: placement, claims and environment as with real ones, and marked in every place."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentd.core.telemetry_blob import CardNow
from agentd.gpu.base import Gpu, GpuSetupRefused
from schemas.limits import GPUS_PER_NODE_MAX

_PART = re.compile(r"(\d{1,4})x([A-Za-z][A-Za-z0-9]{0,31}(?:-[A-Za-z0-9]{1,16})*?)(?:-(\d{1,4})GB)?")
_MEMORY_GB = {"H100": 80, "H800": 80, "A100": 80, "A800": 80, "H200": 141, "B200": 180, "L40S": 48, "RTX4090": 24}
_UNKNOWN_GB = 80
_NAMESPACE = uuid.UUID("6f5f2f0e-9a0c-5d0b-8f1a-5d3a7f0c9a11")


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    cards: tuple[Gpu, ...]
    backend: str = "simulated"

    def inventory(self) -> Sequence[Gpu]:
        return self.cards

    def sample(self, cpu_percent: Mapping[str, float | None]) -> Sequence[CardNow]:
        """A card that no task holds does nothing, and that is known."""
        return [CardNow(card.uuid, _capped(cpu_percent.get(card.uuid, 0.0))) for card in self.cards]

    @property
    def faults(self) -> Mapping[str, str]:
        return {}

    @property
    def state(self) -> str:
        return f"{len(self.cards)} simulated cards: no real GPU is used"

    def close(self) -> None:
        pass


def _capped(percent: float | None) -> float | None:
    return None if percent is None else min(percent, 100.0)


def parse_simulated(text: str, node_id: str) -> SimulatedGpus:
    """`2xH100-80GB`, or several such parts joined by commas. Same node and place, same uuid, for ever."""
    cards: list[Gpu] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or int(match[1]) == 0:
            raise GpuSetupRefused(
                f"--gpus simulated:{text} is not understood at {part.strip()!r}; write it like simulated:2xH100-80GB"
            )
        memory_gb = int(match[3]) if match[3] else _MEMORY_GB.get(match[2], _UNKNOWN_GB)
        kind = f"{match[2]}-{match[3]}GB" if match[3] else match[2]
        for _ in range(int(match[1])):
            index = len(cards)
            name = f"SIM-{uuid.uuid5(_NAMESPACE, f'{node_id}/{index}')}"
            cards.append(Gpu(name, kind, memory_gb * 1024, index))
            if len(cards) > GPUS_PER_NODE_MAX:
                raise GpuSetupRefused(
                    f"--gpus simulated:{text} asks for more than {GPUS_PER_NODE_MAX} cards on one host"
                )
    return SimulatedGpus(tuple(cards))
