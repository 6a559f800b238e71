"""The --gpus setting: `none`, `simulated:2xH100-80GB`, `nvml` or `nvml:GPU-uuid,GPU-uuid`."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

from agentd.core.telemetry_blob import CardNow
from agentd.gpu.base import Gpu, GpuAdapter, GpuSetupRefused
from agentd.gpu.nvml import NvmlGpus
from agentd.gpu.simulated import parse_simulated

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NoGpus:
    backend: str = "none"
    state: str = "this host offers no cards (--gpus none)"
    faults: Mapping[str, str] = field(default_factory=dict)

    def inventory(self) -> Sequence[Gpu]:
        return ()

    def sample(self, cpu_percent: Mapping[str, float | None]) -> Sequence[CardNow]:
        return ()

    def close(self) -> None:
        pass


def choose_gpus(setting: str, node_id: str) -> GpuAdapter:
    kind, _, rest = setting.partition(":")
    if kind == "simulated" and rest:
        return parse_simulated(rest, node_id)
    if setting == "none":
        return NoGpus()
    if kind == "nvml":
        return NvmlGpus([uuid.strip() for uuid in rest.split(",") if uuid.strip()])
    raise GpuSetupRefused(
        f"--gpus {setting} is not understood; write none, nvml, nvml:GPU-uuid,GPU-uuid or simulated:2xH100-80GB"
    )


class CardHold:
    """Real cards taken by this agent against every other agent of the host. Abstract sockets: the kernel frees them
    with the process, also one of another user."""

    def __init__(self) -> None:
        self._held: dict[str, socket.socket] = {}

    def take(self, uuids: Sequence[str]) -> None:
        """All or none. Raises GpuSetupRefused naming a card that another agent has."""
        taken: dict[str, socket.socket] = {}
        for uuid in uuids:
            if uuid in self._held:
                continue
            mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                mark.bind(f"\0heteroflow-card-{uuid}")
            except OSError as error:
                for one in (mark, *taken.values()):
                    one.close()
                raise GpuSetupRefused(
                    f"card {uuid} is used by another agent on this host; divide the cards with --gpus nvml:UUID,UUID"
                ) from error
            taken[uuid] = mark
        self._held.update(taken)

    def close(self) -> None:
        while self._held:
            self._held.popitem()[1].close()


@asynccontextmanager
async def opened_gpus(setting: str, node_id: str) -> AsyncIterator[tuple[Sequence[Gpu], GpuAdapter]]:
    """The cards of this host and who looks at them; real ones are held meanwhile. Raises GpuSetupRefused."""
    with ExitStack() as stack:
        adapter = choose_gpus(setting, node_id)
        stack.callback(adapter.close)
        gpus = await asyncio.to_thread(adapter.inventory)
        if adapter.backend == "nvml":
            hold = CardHold()
            stack.callback(hold.close)
            hold.take([gpu.uuid for gpu in gpus])
        log.info("cards: %s", adapter.state, extra={"faults": dict(adapter.faults)})
        yield gpus, adapter
