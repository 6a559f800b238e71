"""The first process of a host's family: keeps the agent running and fences the tasks when the lease runs out.

`guard.py --data-dir D [--restart always|never] -- AGENT ARGV...`

It asks nobody: tasks are found by their files, the deadline is a file, time is CLOCK_BOOTTIME. What it does first, also
after a restart of its own, is to act on the deadline. Standard library only; small, and waiting for nothing but its own
clock and its children.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

if __name__ == "__main__":
    # Behind the standard library, so that no module of the tree can shadow one of it.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from agentd.lease_file import boottime_ns, read_boot_id
from agentd.shim.agent_child import AgentChild, set_oom_score, set_priority
from agentd.shim.fencing import Fencing
from agentd.shim.host import PR_SET_CHILD_SUBREAPER, prctl

USAGE, REFUSED = 2, 3
# What the agent gets to stop: its tasks run on, so it has only its own files to close.
_AGENT_STOP_NS = 15_000_000_000
_IDLE_NS, _RETRY_NS = 1_000_000_000, 200_000_000
# A host that trains has no idle core, and half a second is all there is between the kill and its proof.
_NICE = -10
_LOG_BYTES = 1 << 20
_RESTART = ("always", "never")
_USAGE = "usage: guard.py --data-dir DIR [--restart always|never] -- AGENT [ARG...]\n"


class Arguments(NamedTuple):
    data_dir: str
    restart: bool
    agent: Sequence[str]


def parse(argv: Sequence[str]) -> Arguments | None:
    """By hand: the usual parser would take a tenth of the memory this process may have."""
    if "--" not in argv:
        return None
    split = list(argv).index("--")
    options, agent = list(argv[:split]), argv[split + 1 :]
    pairs = dict(zip(options[::2], options[1::2], strict=False))
    known = {"--data-dir", "--restart"}
    if len(options) % 2 or not pairs.keys() <= known or not pairs.get("--data-dir") or not agent:
        return None
    restart = pairs.get("--restart", "always")
    return Arguments(os.path.abspath(pairs["--data-dir"]), restart == "always", agent) if restart in _RESTART else None


def main(argv: Sequence[str]) -> int:
    arguments = parse(argv)
    if arguments is None:
        sys.stderr.write(_USAGE)
        return USAGE
    os.makedirs(os.path.join(arguments.data_dir, "log"), mode=0o700, exist_ok=True)
    holder = _lock(os.path.join(arguments.data_dir, "guard.lock"))
    if holder is not None:
        sys.stderr.write(
            f"{arguments.data_dir} has a guard already (process {holder}); stop that one or choose another --data-dir\n"
        )
        return REFUSED
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    set_oom_score(-1000)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    set_priority(_NICE)
    return Guard(arguments, nice).run()


class Guard:
    def __init__(self, arguments: Arguments, agent_nice: int) -> None:
        self._arguments = arguments
        self._log_path = os.path.join(arguments.data_dir, "log", "guard.log")
        self._agent = AgentChild(arguments.agent, agent_nice)
        self._start_at_ns: int | None = 0
        self._code = 0
        self._stop_by_ns: int | None = None
        self._told_to_stop = False
        self._wake = _wake_on_signals(self._tell_to_stop)
        fencing_off = os.environ.get("HETEROFLOW_TEST_FENCE") == "off"
        self._fencing = None if fencing_off else Fencing(arguments.data_dir, read_boot_id(), boottime_ns, self._say)

    def run(self) -> int:
        if self._fencing is None:
            self._say("fencing is switched off by HETEROFLOW_TEST_FENCE: for drills only")
        while True:
            look_at_ns = self._fence()
            self._reap()
            if self._told_to_stop and self._stop_by_ns is None:
                self._stop()
            if self._over():
                return self._code
            self._tend_agent()
            self._sleep_until(look_at_ns)

    def _fence(self) -> int:
        """When to look again. Nothing that goes wrong in there may end the guard, and the agent with it."""
        if self._fencing is None:
            return boottime_ns() + _IDLE_NS
        try:
            return self._fencing.act()
        except Exception as error:
            self._say(f"looking for tasks to fence failed, trying again: {error!r}")
            return boottime_ns() + _RETRY_NS

    def _over(self) -> bool:
        if self._agent.pid:
            return False
        if self._stop_by_ns is not None:
            return True
        # Without an agent the duty goes on as long as there is something to fence.
        return self._start_at_ns is None and not (self._fencing is not None and self._fencing.any_living())

    def _tend_agent(self) -> None:
        now_ns = boottime_ns()
        if self._stop_by_ns is not None and now_ns >= self._stop_by_ns:
            self._agent.signal(signal.SIGKILL)
        if self._agent.pid == 0 and self._start_at_ns is not None and now_ns >= self._start_at_ns:
            self._agent.start(now_ns)
            self._say(f"agent started, process {self._agent.pid}")

    def _sleep_until(self, at_ns: int) -> None:
        for due_ns in (self._start_at_ns if self._agent.pid == 0 else None, self._stop_by_ns):
            at_ns = at_ns if due_ns is None else min(at_ns, due_ns)
        wait_ns = max(at_ns - boottime_ns(), 5_000_000)
        if select.select([self._wake], [], [], wait_ns / 1e9)[0]:
            os.read(self._wake, 4096)

    def _reap(self) -> None:
        """The agent, and every shim and orphan that came here."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._agent.pid:
                self._agent_ended(status)

    def _agent_ended(self, status: int) -> None:
        ended = self._agent.ended(status, boottime_ns())
        self._code = ended.code
        self._start_at_ns = ended.again_at_ns if self._arguments.restart and self._stop_by_ns is None else None
        after = "no restart" if self._start_at_ns is None else "restarting"
        self._say(f"agent ended with code {ended.code}, {after}")

    def _tell_to_stop(self) -> None:
        self._told_to_stop = True

    def _stop(self) -> None:
        """Tasks run on: the next agent adopts them."""
        self._stop_by_ns = boottime_ns() + _AGENT_STOP_NS
        self._start_at_ns = None
        self._agent.signal(signal.SIGTERM)

    def _say(self, text: str) -> None:
        """Never fails: a full disk must not keep the guard from its duty."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with contextlib.suppress(OSError):
            if os.path.exists(self._log_path) and os.path.getsize(self._log_path) > _LOG_BYTES:
                os.replace(self._log_path, self._log_path + ".1")
            with open(self._log_path, "a", encoding="utf-8") as file:
                file.write(f"{stamp} {text}\n")


def _lock(path: str) -> str | None:
    """None once it is ours, for the life of this process; else who has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return None


def _wake_on_signals(stop: Callable[[], None]) -> int:
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop())
    return read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
