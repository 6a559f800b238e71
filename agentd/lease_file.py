"""The deadline file of a host: written in place through one mmap by the agent, read by guard and shims."""

import mmap
import os
import time

from agentd.core.deadline import FILE_BYTES, Lease, decode, encode, slot_offset


def read_boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def read_lease(path: str) -> Lease | None:
    """None where the file is missing or holds no whole record. Opened anew each time, so a replaced file is seen."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return decode(os.read(fd, FILE_BYTES))
    except OSError:
        return None
    finally:
        os.close(fd)


class LeaseWriter:
    """The one writer of a host's deadline, held by the agent. It goes on from the record it finds: a restarted agent
    neither shortens nor forgets what was granted before. Raises OSError where there is no room for it."""

    def __init__(self, path: str, boot_id: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, FILE_BYTES)
            # A page without room on the disk behind it would kill its writer by SIGBUS when the disk is full.
            os.posix_fallocate(fd, 0, FILE_BYTES)
            self._map = mmap.mmap(fd, FILE_BYTES)
        finally:
            os.close(fd)
        found = decode(self._map[:])
        self._boot_id = boot_id
        self._seq = found.seq if found is not None else 0
        self._deadline_ns = found.deadline_ns if found is not None and found.boot_id == boot_id else 0

    @property
    def deadline_ns(self) -> int:
        return self._deadline_ns

    def extend(self, deadline_ns: int) -> bool:
        """False, and nothing written, where the deadline is not later than the one in force."""
        if deadline_ns <= self._deadline_ns:
            return False
        self._seq += 1
        self._deadline_ns = deadline_ns
        start = slot_offset(self._seq)
        slot = encode(Lease(self._boot_id, deadline_ns, self._seq))
        self._map[start : start + len(slot)] = slot
        return True

    def close(self) -> None:
        self._map.close()
