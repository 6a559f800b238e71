"""The pipes that tasks report through, read between two looks. Nothing is kept but the newest of each task.

A pipe holds 64 KiB and costs no disk, and a container sees it on a read-only mount: a task that floods it loses its own
reports, and nothing else.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from agentd.core.report import LINE_MAX, Report, report_of, taken
from agentd.runtime.base import TaskId

_READ_BYTES = 64 * 1024
# Of one look: the newest count, and parsing costs the agent's time.
_LINES_MAX = 64


class ReportPipes:
    """path_of: of a task's pipe on this host. Never waits."""

    def __init__(self, path_of: Callable[[TaskId], str]) -> None:
        self._path_of = path_of
        self._open: dict[TaskId, int] = {}
        self._rest: dict[TaskId, bytes] = {}
        self.newest: dict[TaskId, Report] = {}

    def look(self, tasks: Iterable[TaskId], now_s: float) -> None:
        """tasks: those that run; the others are forgotten."""
        alive = set(tasks)
        for task in [task for task in self._open if task not in alive]:
            os.close(self._open.pop(task))
            self._rest.pop(task, None)
        for task in [task for task in self.newest if task not in alive]:
            del self.newest[task]
        for task in sorted(alive):
            descriptor = self._descriptor(task)
            if descriptor is not None:
                self._read(task, descriptor, now_s)

    def close(self) -> None:
        self.look((), 0.0)

    def _descriptor(self, task: TaskId) -> int | None:
        """Held open: a pipe that nobody reads takes nothing."""
        if task not in self._open:
            with suppress(OSError):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(self._path_of(task), flags)
                if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    self._open[task] = descriptor
                else:
                    os.close(descriptor)
        return self._open.get(task)

    def _read(self, task: TaskId, descriptor: int, now_s: float) -> None:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                os.close(self._open.pop(task))
            return
        *lines, rest = (self._rest.get(task, b"") + data).split(b"\n")
        self._rest[task] = rest[:LINE_MAX]
        for line in deque(lines, _LINES_MAX):
            if (told := report_of(line)) is not None:
                self.newest[task] = taken(self.newest.get(task), told, now_s)
