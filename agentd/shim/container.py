"""The life of a task in a container: the engine starts it, everything after that needs no engine.

Stop and fence go to the container's processes by pid and start time, output comes from the engine's log file, and how
the program ended comes from the kernel where it tells. The engine is asked only for the start and, at the end, for the
exit code; it may hang, be restarted or be gone meanwhile.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from agentd.core.frames import PLATFORM
from agentd.lease_file import boottime_ns
from agentd.logs.writer import LogWriter
from agentd.shim.duty import Duty
from agentd.shim.engine_ask import Answer, Ask
from agentd.shim.exit_events import ExitEvents
from agentd.shim.host import Process, process_table, read_process, write_json
from agentd.shim.json_log import JsonLog, Record
from agentd.shim.order import ContainerOrder, Spec
from agentd.shim.reach import kill, kill_marked
from agentd.shim.record import LOST, TaskRecord

_ASK_AGAIN_S = 0.2
_ENDED_LOOK_S = 0.05
_ANSWER_NS = 60_000_000_000
# How long an end that the kernel shows waits for an engine to say how it was.
_SILENT_NS = 60_000_000_000
_LOG_BUSY_S, _LOG_IDLE_S = 0.01, 0.1
# So that a flood of output cannot keep the shim from its duty.
_LOG_READS = 8
_NEVER = "0001-01-01"
_ONE_FRAME_NS, _ONE_FRAME_BYTES = 20_000_000, 60_000


_MISSED = (
    "output before the end may be missing: Docker did not answer when the program ended, and what a program writes "
    "while Docker is down is lost if it also ends then"
)

# What the container's init says instead of a program that it cannot run.
_INIT_FAILED = b"[FATAL tini ("


class End(NamedTuple):
    """exit_code: as the engine says it, 128 + n for signal n as well. None: it did not say."""

    exit_code: int | None
    oom_killed: bool
    error: str


class ContainerLife:
    """began: called once with (pid, start) of the container's first process; (0, 0) where it is gone already."""

    def __init__(
        self,
        directory: str,
        spec: Spec,
        order: ContainerOrder,
        record: TaskRecord,
        log: LogWriter,
        wake: int,
        told: Callable[[], bool],
        began: Callable[[TaskRecord], None],
    ) -> None:
        self._directory, self._spec, self._order = directory, spec, order
        self._record = record
        self._log = log
        self._wake = wake
        self._began = began
        self._duty = Duty(directory, spec, told)
        self._events = ExitEvents()
        self._ask: Ask | None = None
        self._ask_by_ns = 0
        self._ask_at_ns = 0
        self._asked_start = False
        self._born = False
        self._main: Process | None = None
        self._pidfd = -1
        self._gone_ns = 0
        # Said that the engine may not have been there when the container ended.
        self._missed = False
        self._end: End | None = None
        self._start_error = ""
        self._lines: JsonLog | None = None
        self._read_at_ns = 0
        self._first_words = b""

    def run(self) -> None:
        try:
            while self._end is None and not self._start_error:
                now_ns = boottime_ns()
                wait_s = self._obey(now_ns)
                self._talk(now_ns)
                self._poll(min(wait_s, self._move_output(now_ns), self._ask_wait_s(now_ns)))
            while self._born and not kill(self._record, self._directory):
                time.sleep(_ENDED_LOOK_S)
            self._drain()
        finally:
            self._events.close()
            if self._pidfd >= 0:
                os.close(self._pidfd)

    def result(self) -> dict[str, Any]:
        """The part of exit.json that the container decides."""
        if self._start_error or self._end is None:
            return {"exit_code": None, "signal": None, "why": "start_failed", "error": self._start_error}
        end = self._end
        if end.exit_code in (126, 127) and self._first_words.startswith(_INIT_FAILED):
            said = self._first_words.partition(b"failed: ")[2].partition(b"\n")[0].decode("utf-8", "replace")
            error = f"program {self._spec.argv[0]}: {said or 'cannot be run in this image'}"
            return {"exit_code": None, "signal": None, "why": "start_failed", "error": error}
        code, number, note = self._how(end)
        why, reason = self._duty.why_ended(number, self._record)
        if end.exit_code is None and number is None and code is None and why == "exited":
            why = "lost"
        return {
            "exit_code": code,
            "signal": number,
            "why": why,
            "error": "; ".join(part for part in (reason, note, end.error) if part),
        }

    def _how(self, end: End) -> tuple[int | None, int | None, str]:
        """(exit code, signal, what to say of it)"""
        status = self._events.statuses.get(self._main.pid if self._main is not None else 0)
        if status is None and end.exit_code is not None and end.exit_code <= 128:
            return end.exit_code, None, ""
        if end.oom_killed:
            return None, signal.SIGKILL, "out of memory: the kernel killed it at the container's memory limit"
        if status is not None and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            said = "no sign of memory running out" if number == signal.SIGKILL and not self._duty.begun else ""
            return None, number, said
        if status is not None:
            return os.WEXITSTATUS(status), None, ""
        if self._duty.begun and end.exit_code == 128 + signal.SIGKILL:
            return None, signal.SIGKILL, ""
        if end.exit_code is None:
            return None, None, ""
        number = end.exit_code - 128
        return end.exit_code, None, f"signal {number} or `exit {end.exit_code}`: the engine does not tell them apart"

    def _obey(self, now_ns: int) -> float:
        if self._born:
            self._find_main()
            wait_s = self._duty.obey(now_ns, self._record, self._gone_ns == 0)
            return wait_s if self._main is not None or self._gone_ns else _ENDED_LOOK_S
        return self._duty.obey_unborn(now_ns, self._record)

    def _talk(self, now_ns: int) -> None:
        """Whatever the engine has to be asked now."""
        if self._ask is not None:
            if now_ns >= self._ask_by_ns:
                self._ask.give_up("no answer in a minute")
            if self._ask.answer is None:
                return
            self._hear(self._ask.answer, now_ns)
            self._ask = None
        if self._end is not None or self._start_error or now_ns < self._ask_at_ns:
            return
        if self._gone_ns and now_ns - self._gone_ns > _SILENT_NS:
            self._end = End(None, False, "Docker did not say how it ended: it has not answered for a minute")
        elif not self._asked_start:
            self._asked_start = True
            self._begin_ask("POST", f"/containers/{self._order.id}/start", now_ns)
        elif not self._born or self._gone_ns:
            self._begin_ask("GET", f"/containers/{self._order.id}/json", now_ns)

    def _begin_ask(self, method: str, path: str, now_ns: int) -> None:
        self._ask = Ask(self._order.socket, method, path)
        self._ask_by_ns = now_ns + _ANSWER_NS

    def _ask_wait_s(self, now_ns: int) -> float:
        if self._ask is not None:
            return 0.0 if self._ask.answer is not None else 1.0
        if self._born and not self._gone_ns:
            return 1.0
        return max((self._ask_at_ns - now_ns) / 1e9, 0.0)

    def _hear(self, answer: Answer, now_ns: int) -> None:
        self._ask_at_ns = now_ns + int((_ENDED_LOOK_S if self._gone_ns else _ASK_AGAIN_S) * 1e9)
        if answer.status == 0:
            if self._gone_ns and not self._missed:
                self._say_missed()
            return
        if answer.status == 404:
            self._vanished(answer.message)
        elif isinstance(answer.body, dict) and "State" in answer.body:
            self._look(answer.body)
        elif answer.status in (204, 304):
            self._ask_at_ns = now_ns
        else:
            # Only the start is refused so; what the engine made of it is seen in the state.
            self._start_error = answer.message or f"the engine answered {answer.status}"

    def _vanished(self, message: str) -> None:
        if self._born:
            self._end = End(None, False, "the container was removed by somebody else")
        else:
            self._start_error = message

    def _look(self, body: dict[str, Any]) -> None:
        state = body["State"]
        started = not str(state.get("StartedAt", _NEVER)).startswith(_NEVER)
        if not self._born:
            if not started:
                # The answer to the start was lost: nothing was started, so it is ordered again, unless it must not be.
                if self._duty.begun:
                    self._end = End(None, False, "")
                elif state.get("Status") == "created":
                    self._asked_start = False
                return
            self._be_born(int(state.get("Pid") or 0), str(body.get("LogPath") or ""))
        if started and not state.get("Running"):
            self._gone_ns = self._gone_ns or boottime_ns()
            self._end = End(int(state["ExitCode"]), bool(state.get("OOMKilled")), str(state.get("Error") or ""))

    def _be_born(self, pid: int, log_path: str) -> None:
        self._born = True
        self._lines = JsonLog(log_path, self._order.log_files, self._order.log_file_bytes)
        first = read_process(pid) if pid else None
        if first is not None:
            try:
                self._pidfd = os.pidfd_open(pid)
            except OSError:
                first = None
        self._record = self._record._replace(
            pid=pid if first is not None else 0, start=first.start if first is not None else 0
        )
        if first is None:
            self._gone_ns = boottime_ns()
        self._find_main()
        self._began(self._record)

    def _find_main(self) -> None:
        """The first child of the init is the program: whoever else comes to it was born later. It may not be there yet
        when the engine says that the container runs."""
        if self._gone_ns or self._main is not None:
            return
        init = self._record.pid
        mains = [process for process in process_table().values() if process.ppid == init]
        if mains:
            self._main = min(mains, key=lambda process: (process.start, process.pid))
            self._events.only([self._main.pid])

    def _poll(self, wait_s: float) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        watched = {fd for fd in (self._events.fileno(), self._pidfd if not self._gone_ns else -1) if fd >= 0}
        if self._ask is not None and self._ask.answer is None:
            watched.add(self._ask.fileno())
        for fd in watched:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(max(wait_s, 0) * 1000):
            if fd == self._wake:
                os.read(self._wake, 4096)
            elif fd == self._events.fileno():
                self._events.move()
            elif self._ask is not None and fd == self._ask.fileno():
                self._ask.move()
            elif fd == self._pidfd:
                self._gone_ns = boottime_ns()
                self._ask_at_ns = 0

    def _move_output(self, now_ns: int) -> float:
        """Seconds until there is reason to look again."""
        if self._lines is None:
            return _LOG_IDLE_S
        if now_ns < self._read_at_ns:
            return (self._read_at_ns - now_ns) / 1e9
        reads = 0
        while reads < _LOG_READS and self._move_some(self._lines):
            reads += 1
        wait_s = _LOG_BUSY_S if reads else _LOG_IDLE_S
        self._read_at_ns = now_ns + int(wait_s * 1e9)
        return wait_s

    def _move_some(self, lines: JsonLog) -> bool:
        """One read; records of one stream and moment become one frame."""
        records = lines.read()
        self._write(records)
        return bool(records)

    def _write(self, records: list[Record]) -> None:
        stream, at_ns, size = PLATFORM, 0, 0
        parts: list[bytes] = []
        if records and not self._first_words:
            self._first_words = records[0].data
        for record in records:
            apart = record.stream != stream or size > _ONE_FRAME_BYTES or record.at_ns - at_ns > _ONE_FRAME_NS
            if parts and apart:
                self._log.append(stream, b"".join(parts), at_ns)
                parts, size = [], 0
            if record.stream == PLATFORM:
                self._say_lost(record)
                continue
            if not parts:
                stream, at_ns = record.stream, record.at_ns
            parts.append(record.data)
            size += len(record.data)
        if parts:
            self._log.append(stream, b"".join(parts), at_ns)

    def _say_lost(self, record: Record) -> None:
        """In the log where it is missing; and to the agent at once, since a task may run on for days."""
        self._log.say(record.data.decode(), record.at_ns)
        self._log.lose(record.lost)
        with contextlib.suppress(OSError):
            write_json(os.path.join(self._directory, LOST), {"bytes": self._log.lost_bytes})

    def _say_missed(self) -> None:
        """Behind all that the engine has written so far."""
        self._missed = True
        while self._lines is not None and self._move_some(self._lines):
            pass
        self._log.say(_MISSED, time.time_ns())

    def _drain(self) -> None:
        """All that the engine wrote before it said that the container has ended."""
        if self._lines is not None:
            while self._move_some(self._lines):
                pass
            self._write(self._lines.finish())
            self._lines.close()
        if not self._born:
            kill_marked(self._directory)
