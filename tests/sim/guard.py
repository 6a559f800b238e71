"""The guard of one host: finds recorded tasks, judges each by the deadline file, ends what is due. It asks nobody."""

from __future__ import annotations

from agentd.core import deadline
from agentd.runtime.base import TaskId
from agentd.shim import ending
from agentd.shim.ending import Ending
from tests.sim.host import Host
from tests.sim.loop import MS, Process
from tests.sim.mesh_watch import MeshWatch
from tests.sim.task import LOOK_NS

LATE_NS = 150 * MS  # it looks every 100 ms while it fences, and a busy machine adds to that


class SimGuard(Process):
    def __init__(self, host: Host, watch: MeshWatch) -> None:
        super().__init__(host.loop, f"{host.name}:guard")
        self.rate = host.rate
        self._host, self._watch = host, watch
        self._endings: dict[TaskId, Ending] = {}

    def start(self) -> None:
        """What it does first, also after a restart of its own, is to act on the deadline."""
        self.begin()
        self._endings = {}
        self._look()

    def _look(self) -> None:
        now_ns = self._host.now_ns()
        next_ns = LOOK_NS
        for task in self._host.tasks.values():
            if not task.running:
                self._endings.pop(task.id, None)
                continue
            verdict = deadline.judge(self._host.lease(), self._host.boot_id, now_ns, task.policy, task.started_ns)
            begun = self._endings.get(task.id, Ending())
            end = self._endings[task.id] = ending.fence(begun, verdict)
            due = end.kill_at_ns if end.why else verdict.term_at_ns
            if end.why:
                if not begun.why:
                    self._watch.fenced(task, "guard")
                if task.paused:
                    task.term()  # a living shim does it by itself, so that a program hears it once
                if now_ns >= end.kill_at_ns:
                    task.kill()
            next_ns = min(next_ns, max(due - now_ns, 20 * MS))
        self.after(next_ns + self.loop.rng.random() * LATE_NS, self._look)
