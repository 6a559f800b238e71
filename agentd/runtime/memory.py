"""Tasks without processes: the twin of `process` for tests of everything above a runtime, and for demonstrations."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from agentd.core.frames import OUT
from agentd.logs.writer import LogWriter
from agentd.runtime.base import ContainerOptions, Observed, RuntimeRefused, TaskId, TaskSpec, Why
from agentd.runtime.exec_session import ExecEnd, ExecSession
from agentd.runtime.feed import ChangeFeed
from schemas.exec_frames import STDOUT, ExecRequest


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a task does. run_s: until it ends by itself, None for never. on_term: "end" at once, "ignore", or the exit
    code it ends with after saving. start_error: it never begins. output: written to the log as it begins."""

    run_s: float | None = None
    exit_code: int = 0
    signal: int | None = None
    on_term: Literal["end", "ignore"] | int = "end"
    start_error: str = ""
    start_s: float = 0.0
    output: str = ""


def run_for_ever(_: TaskSpec) -> Behaviour:
    return Behaviour()


@dataclass(slots=True)
class _Task:
    spec: TaskSpec
    seen: Observed
    behaviour: Behaviour
    life: asyncio.Task[None] | None = None
    kill_at: float = float("inf")


class MemoryRuntime:
    """script: the behaviour of each task. root: where logs go, as `process` writes them; without one there are none.

    A second runtime given the `host` of the first adopts its tasks, as after an agent restart."""

    name = "memory"
    host_paths = True
    trouble = ""

    def __init__(
        self,
        script: Callable[[TaskSpec], Behaviour] = run_for_ever,
        root: Path | None = None,
        host: "dict[TaskId, _Task] | None" = None,
    ) -> None:
        self.script = script
        self._root = root
        self.host: dict[TaskId, _Task] = {} if host is None else host
        self._ran: set[TaskId] = set(self.host)
        self._feed = ChangeFeed()
        self._pids = 1000

    async def open(self) -> None:
        """Tasks of `host` go on; those that were let go of are taken up again."""
        for task in self.host.values():
            if task.seen.state != "exited":
                task.life = asyncio.create_task(self._die(task) if task.seen.stopping else self._live(task))

    async def close(self) -> None:
        for task in self.host.values():
            if task.life is not None:
                task.life.cancel()
                await asyncio.wait([task.life])

    async def get_image(self, options: ContainerOptions, say: Callable[[str], None]) -> None:
        """Every image is here."""

    async def start(self, spec: TaskSpec) -> Observed:
        task = self.host.get(spec.id)
        if task is not None:
            if task.seen.token != spec.token:
                raise RuntimeRefused(f"{spec.id} is here for bind {task.seen.token}, not {spec.token}")
            return task.seen
        if bool(spec.argv) == bool(spec.shell):
            raise RuntimeRefused(f"{spec.id} needs exactly one of argv and shell")
        if spec.id in self._ran:
            raise RuntimeRefused(f"{spec.id} ran on this host before and was removed; a task is started once")
        self._ran.add(spec.id)
        seen = Observed(spec.id, spec.token, "starting", gpus=tuple(spec.gpus))
        task = _Task(spec, seen, self.script(spec))
        self.host[spec.id] = task
        task.life = asyncio.create_task(self._live(task))
        return seen

    async def stop(self, task_id: TaskId, grace_s: float, why: str) -> None:
        task = self.host.get(task_id)
        if task is None or task.seen.state == "exited":
            return
        task.kill_at = min(task.kill_at, asyncio.get_running_loop().time() + max(grace_s, 0.0))
        self._set(task, stopping=True, text=why)
        if task.life is not None:
            task.life.cancel()
            task.life = asyncio.create_task(self._die(task))

    async def kill(self, task_id: TaskId) -> None:
        await self.stop(task_id, 0.0, "killed")

    async def list(self) -> Sequence[Observed]:
        return [self.host[task_id].seen for task_id in sorted(self.host)]

    async def remove(self, task_id: TaskId) -> None:
        task = self.host.get(task_id)
        if task is None:
            return
        if task.seen.state != "exited":
            raise RuntimeRefused(f"{task_id} has not ended; stop it first")
        del self.host[task_id]

    def changes(self) -> AsyncIterator[Observed]:
        return aiter(self._feed)

    def log_dir(self, task_id: TaskId) -> str:
        root = self._root or Path("/nonexistent")
        return str(root / task_id.group_id / str(task_id.attempt) / str(task_id.rank) / "log")

    async def exec(self, task_id: TaskId, request: ExecRequest) -> ExecSession:
        """Whatever is asked for: a program that says what it hears, until it hears no more."""
        task = self.host.get(task_id)
        if task is None or task.seen.state != "running":
            raise RuntimeRefused(f"rank {task_id.rank} of {task_id.group_id} does not run here")
        return _Echo()

    def fence(self) -> None:
        """What guard and shims do to the tasks when the lease of the host runs out."""
        for task in self.host.values():
            if task.seen.state != "exited" and task.spec.on_isolation == "stop":
                if task.life is not None:
                    task.life.cancel()
                self._end(task, "fenced", None, 9)

    async def _live(self, task: _Task) -> None:
        behaviour = task.behaviour
        if task.seen.state == "starting":
            await asyncio.sleep(behaviour.start_s)
            if behaviour.start_error:
                self._set(task, state="exited", why="start_failed", text=behaviour.start_error, ended_ms=_now_ms())
                return
            self._pids += 1
            self._write(task.spec.id, behaviour.output)
            self._set(task, state="running", pid=self._pids, started_ms=_now_ms())
        if behaviour.run_s is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(behaviour.run_s)
        if behaviour.signal is None:
            self._end(task, "exited", behaviour.exit_code, None)
        else:
            self._end(task, "killed", None, behaviour.signal)

    async def _die(self, task: _Task) -> None:
        on_term = task.behaviour.on_term
        loop = asyncio.get_running_loop()
        if task.seen.state == "starting":
            self._end(task, "stopped", None, None)
        elif on_term == "ignore" or loop.time() >= task.kill_at:
            await asyncio.sleep(max(task.kill_at - loop.time(), 0.0))
            self._end(task, "stopped", None, 9)
        elif on_term == "end":
            self._end(task, "stopped", None, 15)
        else:
            self._end(task, "stopped", on_term, None)

    def _end(self, task: _Task, why: Why, exit_code: int | None, signal: int | None) -> None:
        self._set(task, state="exited", pid=None, why=why, exit_code=exit_code, signal=signal, ended_ms=_now_ms())

    def _set(self, task: _Task, **changed: object) -> None:
        # Fields by name: mypy cannot tell which of them a dictionary holds.
        task.seen = replace(task.seen, **changed)  # type: ignore[arg-type]
        self._feed.push(task.seen)

    def _write(self, task_id: TaskId, output: str) -> None:
        if self._root is None or not output:
            return
        os.makedirs(self.log_dir(task_id), mode=0o700, exist_ok=True)
        log = LogWriter(self.log_dir(task_id), 1 << 20, 4)
        log.append(OUT, output.encode(), time.time_ns())
        log.close()


class _Echo:
    def __init__(self) -> None:
        self._said: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(4)
        self._end = ExecEnd(exit_code=0)

    async def read(self) -> tuple[int, bytes] | None:
        return await self._said.get()

    async def write(self, data: bytes) -> None:
        await self._said.put((STDOUT, data))

    async def write_eof(self) -> None:
        await self._said.put(None)

    async def resize(self, rows: int, cols: int) -> None:
        pass

    async def ended(self) -> ExecEnd:
        return self._end

    async def close(self) -> None:
        pass


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
