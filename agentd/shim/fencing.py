"""The guard's side of the deadline: finds the tasks of a host by their files and ends them when the lease has run out.

A living shim sends SIGTERM by itself, so that a program hears it once; the guard sends it where the shim is dead or
frozen. SIGKILL it sends in any case.
"""

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agentd.core.deadline import Lease, judge
from agentd.lease_file import read_lease
from agentd.shim import ending, reach
from agentd.shim.ending import Ending
from agentd.shim.host import is_alive, process_table, read_process
from agentd.shim.record import NAMESPACES, PID, TaskRecord, has_ended, read_record

_LOOK_NS = 1_000_000_000
_FENCING_NS = 100_000_000
_KILLING_NS = 20_000_000
_SEARCHING_NS = 250_000_000
# Looking for tasks may take this share of one core where there are very many.
_SCAN_SHARE = 0.02


class _Fenced(NamedTuple):
    ending: Ending
    asked: bool


class Fencing:
    """now_ns: CLOCK_BOOTTIME. say: takes a line for the guard's log."""

    def __init__(self, data_dir: str, boot_id: str, now_ns: Callable[[], int], say: Callable[[str], None]) -> None:
        self._tasks = os.path.join(data_dir, "tasks")
        self._lease_path = os.path.join(data_dir, "lease")
        self._boot_id = boot_id
        self._now_ns = now_ns
        self._say = say
        self._fenced: dict[str, _Fenced] = {}

    def act(self) -> int:
        """Does what is due now; when to call again."""
        now_ns = self._now_ns()
        lease = read_lease(self._lease_path)
        verdict = judge(lease, self._boot_id, now_ns, "stop", 0)
        if not verdict.kill and not self._fenced:
            return min(verdict.term_at_ns, now_ns + _LOOK_NS)
        # First those that one signal ends: what takes a walk through the process table must not make them wait.
        for directory, record in sorted(self._living(), key=lambda living: living[1].ns not in NAMESPACES):
            try:
                self._fence(directory, record, lease)
            except OSError as error:
                # The next task must not live on because of this one.
                self._say(f"fencing {directory} failed, trying again: {error}")
        return self._look_again_ns(self._now_ns() - now_ns)

    def _look_again_ns(self, took_ns: int) -> int:
        now_ns = self._now_ns()
        if not self._fenced:
            return now_ns + max(_SEARCHING_NS, int(took_ns / _SCAN_SHARE))
        first_kill_ns = min(fenced.ending.kill_at_ns for fenced in self._fenced.values())
        return min(max(first_kill_ns, now_ns + _KILLING_NS), now_ns + _FENCING_NS)

    def any_living(self) -> bool:
        return next(self._living(), None) is not None

    def _fence(self, directory: str, record: TaskRecord, lease: Lease | None) -> None:
        now_ns = self._now_ns()
        before = self._fenced.get(directory, _Fenced(Ending(), False))
        verdict = judge(lease, self._boot_id, now_ns, record.policy, record.started_ns)
        end = ending.fence(before.ending, verdict)
        if not end.why:
            return
        if not before.ending.why:
            self._say(f"fencing {directory}: {end.reason}")
        asked = before.asked
        if now_ns >= end.kill_at_ns:
            if reach.kill(record, directory):
                self._say(f"{directory} is gone")
        elif not asked and not _shim_works(record):
            asked = bool(reach.terminate(record, directory))
        self._fenced[directory] = _Fenced(end, asked)

    def _living(self) -> Iterator[tuple[str, TaskRecord]]:
        """Tasks of which something is alive; forgets the fences of all others."""
        living = set()
        for directory in self._directories():
            record = None if has_ended(directory) else read_record(directory)
            if record is not None and record.boot_id == self._boot_id and _lives(record, directory):
                living.add(directory)
                yield directory, record
        for directory in self._fenced.keys() - living:
            del self._fenced[directory]

    def _directories(self) -> Iterator[str]:
        paths = [self._tasks]
        for _ in range(3):
            paths = [entry.path for path in paths for entry in _directories_in(path)]
        for path in paths:
            if os.path.exists(os.path.join(path, PID)):
                yield path


def _directories_in(path: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _lives(record: TaskRecord, directory: str) -> bool:
    if is_alive(record.pid, record.start):
        return True
    return record.ns not in NAMESPACES and bool(reach.task_processes(record, directory, process_table()))


def _shim_works(record: TaskRecord) -> bool:
    shim = read_process(record.shim_pid)
    return shim is not None and shim.start == record.shim_start and shim.state not in "ZXTt"
