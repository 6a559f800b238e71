"""What a shim owes its task's end: it asks when a stop or the lease says so, and kills what has not gone in time."""

import os
import signal
from collections.abc import Callable, Sequence

from agentd.core.deadline import Verdict, judge
from agentd.lease_file import boottime_ns, read_lease
from agentd.shim import ending
from agentd.shim.ending import Ending
from agentd.shim.host import Process
from agentd.shim.order import Spec, read_stop
from agentd.shim.reach import ask_again, kill, kill_marked, terminate
from agentd.shim.record import PID, SPEC, TaskRecord

# Orders come with a signal and the lease says itself when it ends; this is for a signal that was missed.
_LOOK_S = 1.0
_KILL_ROUND_S = 0.02
_MARKED_ROUND_S = 0.2
_ASK_AGAIN_S = 0.1
# By then a process that was just being made when a stop came is what it was to become.
_SETTLE_NS = 1_000_000_000


def fencing_on() -> bool:
    """Drills switch fencing off to prove that their check would notice."""
    return os.environ.get("HETEROFLOW_TEST_FENCE") != "off"


def lease_verdict(spec: Spec, record: TaskRecord) -> Verdict:
    policy = spec.policy if fencing_on() else "keep"
    return judge(read_lease(spec.lease_path), record.boot_id, boottime_ns(), policy, record.started_ns)


class Duty:
    """told: whether SIGTERM came to the shim, which orders a stop even without stop.json."""

    def __init__(self, directory: str, spec: Spec, told: Callable[[], bool]) -> None:
        self._directory = directory
        self._spec = spec
        self._told = told
        self._ending = Ending()
        self._asked: Sequence[Process] = ()
        self._heard_ns = 0
        self._grace_s = spec.stop_grace_s
        self._killed = False

    @property
    def begun(self) -> bool:
        return bool(self._ending.why)

    def obey(self, now_ns: int, record: TaskRecord, began: bool) -> float:
        """Does what is due; seconds until it must look again. began: the program of `record` runs."""
        verdict = self._heed(now_ns, record, (SPEC, PID))
        if not self._ending.why:
            return self._wait_s(verdict.term_at_ns - now_ns, _LOOK_S)
        if now_ns >= self._ending.kill_at_ns:
            self._killed = True
            kill(record, self._directory)
        elif self._asked:
            self._asked = ask_again(self._asked)
        elif began and not self._heard_ns:
            self._asked = terminate(record, self._directory)
            self._heard_ns = now_ns if self._asked else 0
        asking = not self._heard_ns or now_ns < self._heard_ns + _SETTLE_NS
        return self._wait_s(self._ending.kill_at_ns - now_ns, _ASK_AGAIN_S if asking else _LOOK_S)

    def obey_unborn(self, now_ns: int, record: TaskRecord) -> float:
        """As `obey` while nobody can say yet which process the task is: whatever carries its mark goes at once."""
        verdict = self._heed(now_ns, record, (SPEC,))
        if not self._ending.why:
            return self._wait_s(verdict.term_at_ns - now_ns, _LOOK_S)
        kill_marked(self._directory)
        return _MARKED_ROUND_S

    def why_ended(self, number: int | None, record: TaskRecord) -> tuple[str, str]:
        """(why, reason) of an end by `number`, or by an exit where that is None."""
        if number == signal.SIGKILL:
            # The guard does not wait for a shim that was frozen when the lease ran out.
            self._ending = ending.fence(self._ending, lease_verdict(self._spec, record))
        why = ending.why_ended(self._ending, number)
        if self._killed and why == "stopped" and number == signal.SIGKILL:
            late = f"killed, as it had not ended when its grace of {self._grace_s:g} s was over"
            return why, f"{self._ending.reason}: {late}"
        return why, self._ending.reason

    def _heed(self, now_ns: int, record: TaskRecord, files: Sequence[str]) -> Verdict:
        """files: those without which agent and guard do not know of the task."""
        order = read_stop(self._directory)
        if order is not None:
            self._grace_s = order.grace_s
            self._ending = ending.stop(self._ending, order.at_ns, int(order.grace_s * 1e9), order.why)
        elif self._told() and not self._ending.why:
            self._ending = ending.stop(self._ending, now_ns, int(self._spec.stop_grace_s * 1e9), "SIGTERM to the shim")
        verdict = lease_verdict(self._spec, record)
        self._ending = ending.fence(self._ending, verdict)
        if gone := next((name for name in files if _is_removed(os.path.join(self._directory, name))), None):
            # The agent takes such a task for ended, the mesh starts the next attempt, and no stop would come here.
            self._ending = ending.abandon(self._ending, now_ns, f"somebody removed {gone} of this task from its host")
        return verdict

    @staticmethod
    def _wait_s(due_ns: int, most_s: float) -> float:
        return min(max(due_ns / 1e9, _KILL_ROUND_S), most_s)


def _is_removed(path: str) -> bool:
    """Not where the disk only fails to say."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
