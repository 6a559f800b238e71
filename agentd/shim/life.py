"""From TASKDIR to exit.json: at most one start ever, none without a lease, one truthful end."""

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from agentd.lease_file import boottime_ns, read_boot_id
from agentd.logs.writer import LogWriter
from agentd.shim import exit_file
from agentd.shim.duty import lease_verdict
from agentd.shim.host import PR_SET_CHILD_SUBREAPER, prctl, read_process, write_json
from agentd.shim.isolate import Held, Program, hold
from agentd.shim.order import ContainerOrder, Spec, read_container, read_spec, read_stop
from agentd.shim.record import LOCK, LOG, PID, TaskRecord, has_ended, record_json
from agentd.shim.supervisor import Supervisor

RAN, USAGE, NOT_MINE = 0, 2, 3


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write("usage: shim TASKDIR (started by the agent)\n")
        return USAGE
    directory = os.path.abspath(argv[0])
    lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return NOT_MINE
    # Whoever was here before, ended or killed, has had the one start that this task gets.
    if has_ended(directory) or os.path.exists(os.path.join(directory, PID)):
        return NOT_MINE
    _Life(directory, lock).live()
    return RAN


def _wake_on_signals() -> tuple[int, int]:
    """(read, write) of a pipe that gets a byte with every signal."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    return read, write


class _Life:
    """SIGTERM says that there is a stop.json to read; without one it is a stop with the grace of the task."""

    def __init__(self, directory: str, lock: int) -> None:
        self._directory = directory
        self._lock = lock
        self._wake = _wake_on_signals()
        self._told_to_stop = False
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._boot_id = read_boot_id()
        self._token: object = None
        self._log: LogWriter | None = None

    def _on_sigterm(self, _: int, __: FrameType | None) -> None:
        self._told_to_stop = True

    def live(self) -> None:
        try:
            spec = read_spec(self._directory)
            self._token = spec.token
            exit_file.reserve(self._directory)
            self._log = LogWriter(os.path.join(self._directory, LOG), spec.log_max_bytes, spec.log_files, reserve=True)
            result = self._run(spec, self._log)
        except (OSError, ValueError) as error:
            # The program was never reached: what failed (a full disk, no process to be had) is this host's fault.
            result = _end("lost", f"this host could not start it: {error}")
        self._write_exit(result)

    def _run(self, spec: Spec, log: LogWriter) -> dict[str, object]:
        refusal = self._refusal(spec)
        if refusal is not None:
            return refusal
        container = read_container(self._directory)
        if container is not None:
            return self._run_container(spec, container, log)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        held = hold(Program(spec.argv, spec.env, spec.cwd, spec.isolation), (self._lock, *self._wake))
        try:
            record = self._record(spec, held)
            write_json(os.path.join(self._directory, PID), record_json(record, spec.token, time.time_ns() // 1_000_000))
        except OSError:
            os.close(held.go_fd)
            os.waitpid(held.pid, 0)
            raise
        supervisor = Supervisor(self._directory, spec, held, record, log, self._wake[0], lambda: self._told_to_stop)
        # Again, since the lease may have run out while the process was made.
        refusal = self._refusal(spec)
        if refusal is None:
            os.write(held.go_fd, b"g")
            _say_running()
        else:
            os.close(held.go_fd)
        supervisor.run()
        return refusal or supervisor.result()

    def _run_container(self, spec: Spec, container: ContainerOrder, log: LogWriter) -> dict[str, object]:
        # Nothing else pays for what only containers need.
        from agentd.shim.container import ContainerLife

        shim = read_process(os.getpid())
        if shim is None:
            raise OSError("/proc is not mounted")
        unborn = TaskRecord(shim.pid, shim.start, 0, 0, self._boot_id, "pidns", spec.policy, boottime_ns())

        def began(record: TaskRecord) -> None:
            write_json(os.path.join(self._directory, PID), record_json(record, spec.token, time.time_ns() // 1_000_000))
            _say_running()

        life = ContainerLife(
            self._directory, spec, container, unborn, log, self._wake[0], lambda: self._told_to_stop, began
        )
        life.run()
        return life.result()

    def _refusal(self, spec: Spec) -> dict[str, object] | None:
        now = boottime_ns()
        verdict = lease_verdict(spec, TaskRecord(0, 0, 0, 0, self._boot_id, "", spec.policy, now))
        if verdict.kill:
            return _end("fenced", f"not started: {verdict.why}")
        order = read_stop(self._directory)
        if order is not None or self._told_to_stop:
            return _end("stopped", f"not started: {order.why if order else 'SIGTERM to the shim'}")
        return None

    def _record(self, spec: Spec, held: Held) -> TaskRecord:
        shim, first = read_process(os.getpid()), read_process(held.pid)
        if shim is None or first is None:
            raise OSError("the process made for the task is gone; /proc may not be mounted")
        return TaskRecord(
            shim.pid, shim.start, held.pid, first.start, self._boot_id, held.ns, spec.policy, boottime_ns()
        )

    def _write_exit(self, result: dict[str, object]) -> None:
        lost, end = 0, 0
        if self._log is not None:
            self._log.sync(time.time_ns())
            lost, end = self._log.lost_bytes, self._log.end
        whole = {
            **result,
            "token": self._token,
            "boot_id": self._boot_id,
            "log_end": end,
            "log_lost": lost,
            "ended_ns": boottime_ns(),
            "ended_ms": time.time_ns() // 1_000_000,
        }
        while True:
            try:
                return exit_file.write(self._directory, whole)
            except OSError as error:
                if not os.path.isdir(self._directory):
                    return None  # whoever removed the task's directory will never read how it ended
                # Only where even the room taken before is not to be had: an end that nobody can read did not happen.
                sys.stderr.write(f"exit.json cannot be written: {error}; trying again\n")
                time.sleep(1.0)


def _end(why: str, error: str) -> dict[str, object]:
    return {"exit_code": None, "signal": None, "why": why, "error": error}


def _say_running() -> None:
    """One line to the agent that started this shim; it may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, b"running\n")
    null = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(null, 1)
    os.close(null)
