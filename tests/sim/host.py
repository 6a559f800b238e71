"""One machine: its clocks, its deadline file, and the processes and tasks on it."""

from dataclasses import dataclass, field

from agentd.core.deadline import FILE_BYTES, Lease, decode, encode, slot_offset
from agentd.runtime.base import TaskId
from tests.sim.loop import Loop
from tests.sim.task import SimTask

MS_PER_NS = 1_000_000
FIRST_WALL_MS = 1_700_000_000_000


@dataclass(slots=True)
class Host:
    """rate: of its clock against true time. Boot time starts anew with every boot; the wall clock may be anything."""

    loop: Loop
    name: str
    gpus: tuple[str, ...]
    rate: float = 1.0
    wall_offset_ms: int = 0
    boots: int = 1
    booted_at: int = 0
    lease_file: bytearray = field(default_factory=lambda: bytearray(FILE_BYTES))
    tasks: dict[TaskId, SimTask] = field(default_factory=dict)

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots:04d}"

    def now_ns(self) -> int:
        """CLOCK_BOOTTIME."""
        return int((self.loop.now - self.booted_at) * self.rate) + 20_000_000_000

    def wall_ms(self) -> int:
        return FIRST_WALL_MS + self.loop.now // MS_PER_NS + self.wall_offset_ms

    def lease(self) -> Lease | None:
        return decode(bytes(self.lease_file))

    def reboot(self) -> None:
        self.boots += 1
        self.booted_at = self.loop.now


class LeaseFile:
    """The agent's writer, on the same bytes and with the same rules as the mmapped file's."""

    def __init__(self, host: Host) -> None:
        self._host = host
        found = host.lease()
        self._seq = found.seq if found is not None else 0
        self.deadline_ns = found.deadline_ns if found is not None and found.boot_id == host.boot_id else 0

    def extend(self, deadline_ns: int) -> None:
        if deadline_ns <= self.deadline_ns:
            return
        self._seq += 1
        self.deadline_ns = deadline_ns
        start = slot_offset(self._seq)
        slot = encode(Lease(self._host.boot_id, deadline_ns, self._seq))
        self._host.lease_file[start : start + len(slot)] = slot

    def torn(self) -> None:
        """The writer was killed in the middle of the next record."""
        start = slot_offset(self._seq + 1)
        for at in range(start, start + 24):
            self._host.lease_file[at] ^= 0x5A
