"""The life of a started task: move its output, end it when told or when the lease runs out, see how it ends.

One thread, one poll. The task is over when its program has ended; whatever it left behind is killed, and only when
nothing of it is alive, and all it printed is in the log, does `run` return.
"""

import contextlib
import os
import select
from collections.abc import Callable

from agentd.core.frames import ERR, OUT
from agentd.lease_file import boottime_ns
from agentd.logs.writer import LogWriter
from agentd.shim.duty import Duty
from agentd.shim.host import write_json
from agentd.shim.isolate import Held
from agentd.shim.order import Spec
from agentd.shim.pump import Pump
from agentd.shim.reach import kill, terminate
from agentd.shim.record import LOST, NAMESPACES, TaskRecord

_KILL_ROUND_S = 0.02


class Supervisor:
    """wake: a descriptor that turns readable with every signal. told: whether one of them was SIGTERM."""

    def __init__(
        self,
        directory: str,
        spec: Spec,
        held: Held,
        record: TaskRecord,
        log: LogWriter,
        wake: int,
        told: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._held = held
        self._record = record
        self._wake = wake
        self._duty = Duty(directory, spec, told)
        self._pump = Pump({held.out_fd: OUT, held.err_fd: ERR}, log)
        self._log, self._lost_told = log, 0
        self._began = False
        self._wait_status: int | None = None
        self._start_error = ""
        self._heard = b""
        self._reaped = False
        self._status_open = True
        self._look_at_ns = 0
        self._namespace = held.ns in NAMESPACES

    def run(self) -> None:
        while not self._over():
            now_ns = boottime_ns()
            if now_ns >= self._look_at_ns:
                self._look_at_ns = now_ns + int(self._obey(now_ns) * 1e9)
                self._tell_loss()
            self._poll((self._look_at_ns - boottime_ns()) / 1e9)
            self._reap()
        self._pump.drain()

    def result(self) -> dict[str, object]:
        """The part of exit.json that the program decides."""
        if self._start_error:
            return {"exit_code": None, "signal": None, "why": "start_failed", "error": self._start_error}
        code, number = _split(self._wait_status)
        why, reason = self._duty.why_ended(number, self._record)
        return {"exit_code": code, "signal": number, "why": why, "error": reason}

    def _over(self) -> bool:
        """Nothing of the task is alive. A namespace is empty once its PID 1 is reaped."""
        return self._reaped and (self._namespace or kill(self._record, self._directory))

    def _tell_loss(self) -> None:
        """While it runs, since a task may run on for days."""
        if self._log.lost_bytes != self._lost_told:
            with contextlib.suppress(OSError):
                write_json(os.path.join(self._directory, LOST), {"bytes": self._log.lost_bytes})
                self._lost_told = self._log.lost_bytes

    def _obey(self, now_ns: int) -> float:
        wait_s = self._duty.obey(now_ns, self._record, self._began)
        return _KILL_ROUND_S if self._reaped else wait_s

    def _poll(self, wait_s: float) -> None:
        poll = select.poll()
        for fd in (self._wake, *self._pump.streams):
            poll.register(fd, select.POLLIN)
        if self._status_open:
            poll.register(self._held.status_fd, select.POLLIN)
        for fd, _ in poll.poll(max(wait_s, 0) * 1000):
            if fd == self._wake:
                os.read(self._wake, 4096)
                self._look_at_ns = 0
            elif fd in self._pump.streams:
                self._pump.move(fd)
            else:
                self._listen()

    def _listen(self) -> None:
        """What PID 1 says; without a namespace the pipe closes when the program begins."""
        try:
            said = os.read(self._held.status_fd, 65536)
        except BlockingIOError:
            return
        self._status_open = bool(said)
        *lines, self._heard = (self._heard + said).split(b"\n")
        for line in lines:
            word, _, rest = line.decode("utf-8", "replace").partition(" ")
            self._take(word, rest)

    def _take(self, word: str, rest: str) -> None:
        if word == "run":
            self._began = True
            self._look_at_ns = 0
        elif word == "fail":
            self._start_error = rest
        elif word == "end":
            self._wait_status = int(rest)
        elif word == "term":
            terminate(self._record, self._directory)

    def _reap(self) -> None:
        """Without a namespace every orphan of the task comes here."""
        while not (self._reaped and self._namespace):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._held.pid:
                self._reaped = True
                self._look_at_ns = 0
                self._listen()
                if self._wait_status is None:
                    self._wait_status = status


def _split(wait_status: int | None) -> tuple[int | None, int | None]:
    """(exit code, signal)"""
    if wait_status is None:
        return None, None
    if os.WIFSIGNALED(wait_status):
        return None, os.WTERMSIG(wait_status)
    return os.WEXITSTATUS(wait_status), None
