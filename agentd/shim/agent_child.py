"""The agent as the guard's child: started, ended, and started again after a wait that grows while it keeps failing."""

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from agentd.shim.host import PR_SET_PDEATHSIG, prctl

_STABLE_NS = 30_000_000_000
_FIRST_WAIT_NS, _LONGEST_WAIT_NS = 500_000_000, 30_000_000_000
# Exit codes of the agent: usage and a damaged log do not mend themselves; a directory or an address in use may, when it
# is an agent that is only just dying that has it.
_HOPELESS = (0, 2, 5)
_HOPELESS_WHEN_REPEATED = (3, 4)
_REPEATS = 3


class Ended(NamedTuple):
    """code: as a shell gives it, 128 + number for a signal. again_at_ns: None where a restart is of no use."""

    code: int
    again_at_ns: int | None


class AgentChild:
    """nice: of the agent, whatever the guard's is."""

    def __init__(self, argv: Sequence[str], nice: int) -> None:
        self.pid = 0
        self._argv = list(argv)
        self._nice = nice
        self._started_ns = 0
        self._wait_ns = _FIRST_WAIT_NS
        self._failures = 0

    def start(self, now_ns: int) -> None:
        self._started_ns = now_ns
        guard = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(guard)

    def signal(self, number: int) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def ended(self, wait_status: int, now_ns: int) -> Ended:
        """To be called once the process is reaped."""
        self.pid = 0
        code = os.waitstatus_to_exitcode(wait_status)
        code = 128 - code if code < 0 else code
        if now_ns - self._started_ns >= _STABLE_NS:
            self._wait_ns, self._failures = _FIRST_WAIT_NS, 0
        self._failures += 1
        if code in _HOPELESS or (code in _HOPELESS_WHEN_REPEATED and self._failures >= _REPEATS):
            return Ended(code, None)
        again_at_ns = now_ns + self._wait_ns
        self._wait_ns = min(2 * self._wait_ns, _LONGEST_WAIT_NS)
        return Ended(code, again_at_ns)

    def _become(self, guard: int) -> NoReturn:
        try:
            # An agent without a guard would hold the directory against the agent of the next guard.
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            set_oom_score(0)
            set_priority(self._nice)
            os.execvp(self._argv[0], self._argv)
        except OSError as error:
            os.write(2, f"guard: {self._argv[0]} cannot be started: {error.strerror}\n".encode())
        finally:
            os._exit(2)


def set_priority(nice: int) -> None:
    """Best effort: more than others is for root."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)


def set_oom_score(score: int) -> None:
    """Best effort: below zero is for root."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))
