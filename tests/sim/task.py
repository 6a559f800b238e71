"""A task of the process runtime: its shim, and the program under it, as virtual processes.

The shim and the guard judge by the product's deadline function and the shim's own ending rules; both only send signals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentd.core import deadline
from agentd.runtime.base import Observed, TaskId
from agentd.shim import ending
from agentd.shim.ending import Ending
from tests.sim.loop import MS, Process, S

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.mesh_watch import MeshWatch

LOOK_NS = 1 * S  # the shim's and the guard's longest pause between two looks
SIGTERM, SIGKILL = 15, 9


@dataclass(frozen=True, slots=True)
class Program:
    """The user's code: runs that long, exits so. on_term_ns: how long after SIGTERM it ends, None = ignores it."""

    runs_ns: int
    exit_code: int
    on_term_ns: int | None
    grace_ns: int = 5 * S


class SimTask(Process):
    """One program under one shim. `running` is the ground truth: whether the program's processes are there."""

    def __init__(
        self, host: Host, watch: MeshWatch, task_id: TaskId, token: int, gpus: tuple[str, ...], policy: str,
        program: Program, changed: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(host.loop, f"{host.name}:{task_id.group_id[-4:]}/{task_id.attempt}/{task_id.rank}")
        self.rate = host.rate
        self.host, self.watch = host, watch
        self.id, self.token, self.gpus, self.policy, self.program = task_id, token, gpus, policy, program
        self.running = False
        self.recorded = False
        self.ended = False
        self.why = ""
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.started_ns = 0
        self._changed = changed
        self._ending = Ending()
        self._termed = False
        self._look_due = False
        self._looks = 0

    # -- the shim

    def launch(self) -> None:
        self.begin()
        self.after(self.loop.rng.uniform(5, 60) * MS, self._go)

    def _go(self) -> None:
        verdict = self._judge(self.host.now_ns())
        if self._ending.why or verdict.kill:
            self._over(self._ending.why or "fenced", None, None)
            return
        self.started_ns = self.host.now_ns()
        self.recorded = self.running = True
        self.watch.started(self)
        self._program_after(self.program.runs_ns, self.program.exit_code, None)
        self._changed()
        self._look()

    def _judge(self, now_ns: int) -> deadline.Verdict:
        started = self.started_ns if self.recorded else now_ns
        return deadline.judge(self.host.lease(), self.host.boot_id, now_ns, self.policy, started)

    def _look(self) -> None:
        if self.ended:
            return
        self._looks += 1
        now_ns = self.host.now_ns()
        verdict = self._judge(now_ns)
        self._ending = ending.fence(self._ending, verdict)
        due = verdict.term_at_ns
        if self._ending.why:
            due = self._ending.kill_at_ns
            if now_ns >= due:
                self.kill()
            elif not self._termed:
                self.term()
        if not self.ended:
            wait = min(max(due - now_ns, 20 * MS), LOOK_NS)
            self.after(wait + self.loop.rng.random() * 20 * MS, self._look_again, self._looks)

    def _look_again(self, number: int) -> None:
        if number == self._looks:
            self._look()

    def ask_stop(self, grace_ns: int, reason: str) -> None:
        """The agent's order reaches the shim's directory; the shim sees it when it runs."""
        self._ending = ending.stop(self._ending, self.host.now_ns(), grace_ns, reason)
        if self.running:
            self._looks += 1
            self.after(1 * MS, self._look_again, self._looks)

    # -- the program, which a stopped shim does not stop

    def term(self) -> None:
        if self.running and not self._termed:
            self._termed = True
            if self.program.on_term_ns is not None:
                self._program_after(self.program.on_term_ns, None, SIGTERM)

    def ends_within(self, delay_ns: int) -> None:
        """The program is nearly done."""
        if self.running:
            self._program_after(self.loop.rng.random() * delay_ns, self.program.exit_code, None)

    def kill(self) -> None:
        self.exits(None, SIGKILL)

    def exits(self, code: int | None, signal: int | None) -> None:
        """Called by what ends the program, whether the shim runs or not; the shim tells when it can."""
        if not self.running:
            return
        self.running = False
        self.watch.ended(self)
        why = ending.why_ended(self._ending, signal)
        self.deliver(self.life, self._over, (why, code, signal))

    def _program_after(self, delay_ns: float, code: int | None, signal: int | None) -> None:
        self.loop.push(
            self.loop.now + int(delay_ns / self.rate), None, 0, self._program_ends, (self.life, code, signal)
        )

    def _program_ends(self, life: int, code: int | None, signal: int | None) -> None:
        if life == self.life:
            self.exits(code, signal)

    def _over(self, why: str, code: int | None, signal: int | None) -> None:
        self.ended = True
        self.why, self.exit_code, self.signal = why, code, signal
        if why == "fenced":
            self.watch.counts["fenced"] += 1
        self._changed()

    def power_loss(self) -> None:
        """Nothing is left but the directory, which a later agent reads as lost."""
        self.end()
        if self.running:
            self.running = False
            self.watch.ended(self)
        if not self.ended:
            self.ended, self.why = True, "lost"

    # -- what the runtime shows

    def observed(self) -> Observed:
        state = "exited" if self.ended else "running" if self.recorded else "starting"
        return Observed(
            self.id, self.token, state, exit_code=self.exit_code, signal=self.signal, why=self.why,  # type: ignore[arg-type]  # a str
            stopping=bool(self._ending.why), gpus=self.gpus,
        )  # fmt: skip
