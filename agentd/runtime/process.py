"""Tasks as processes of this host, each under a shim that outlives the agent."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentd.lease_file import read_boot_id
from agentd.runtime.base import ContainerOptions, ImageUnavailable, Observed, RuntimeRefused, TaskId, TaskSpec
from agentd.runtime.exec_session import ExecSession
from agentd.runtime.feed import ChangeFeed
from agentd.runtime.process_exec import enter_task
from agentd.runtime.shim_watch import ShimWatch
from agentd.runtime.task_dir import (
    clear,
    end_without_shim,
    forget,
    forgotten_paths,
    observe,
    stop_left_s,
    task_path,
    task_paths,
    was_here,
    write_spec,
    write_stop,
)
from agentd.shim import reach
from agentd.shim.record import EXIT, LOG, LOST, TaskRecord, read_record
from schemas.exec_frames import ExecRequest

_POLL_S = 0.02


@dataclass(slots=True)
class Task:
    id: TaskId
    path: Path
    seen: Observed
    watch: ShimWatch | None = None


class ProcessRuntime:
    """root: D/tasks. isolation: ways to hold a task together, best first; what this host refuses is passed over."""

    name = "process"
    host_paths = True
    trouble = ""
    # How long after the kill was due a shim may take before it is taken for stuck and the task is killed over its head.
    shim_late_s = 2.0

    def __init__(
        self, root: Path, lease_path: Path, isolation: tuple[str, ...] = ("pidns", "userns", "subreaper")
    ) -> None:
        self._root = root.resolve()
        self._lease_path = lease_path.resolve()
        self._isolation = isolation
        self._boot_id = read_boot_id()
        self._tasks: dict[TaskId, Task] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self._feed = ChangeFeed()

    async def open(self) -> None:
        # First: a task whose files somebody removed is nobody's any more, and the mesh will start another attempt.
        known = [str(path) for _, path in task_paths(self._root)]
        await _until(lambda: reach.kill_strays(str(self._root), known))
        for path in forgotten_paths(self._root):
            self._sweep(path)
        for task_id, path in task_paths(self._root):
            task = Task(task_id, path, observe(task_id, path))
            self._tasks[task_id] = task
            if task.seen.state != "exited":
                self._adopt(task)
            if task.seen.stopping and task.seen.state != "exited":
                self._chore(self._see_to_end(task, stop_left_s(path)))

    async def close(self) -> None:
        for task in self._tasks.values():
            if task.watch is not None:
                task.watch.close()
        for chore in list(self._chores):
            chore.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await chore

    async def get_image(self, options: ContainerOptions, say: Callable[[str], None]) -> None:
        raise ImageUnavailable(f"image {options.image} is not used here: this host runs processes", permanent=False)

    async def start(self, spec: TaskSpec) -> Observed:
        task = self._tasks.get(spec.id)
        if task is not None:
            if task.seen.token != spec.token:
                raise RuntimeRefused(
                    f"{_show(spec.id)} is here for bind {task.seen.token}, not {spec.token}: an old order came late, "
                    "or two meshes share this data directory"
                )
            return task.seen
        if bool(spec.argv) == bool(spec.shell):
            raise RuntimeRefused(f"{_show(spec.id)} needs exactly one of argv and shell")
        path = task_path(self._root, spec.id)
        if was_here(path):
            raise RuntimeRefused(f"{_show(spec.id)} ran on this host before and was removed; a task is started once")
        write_spec(path, spec, self._lease_path, self._isolation, self._also_written(spec, path))
        (path / LOG).mkdir(mode=0o700)
        task = Task(spec.id, path, observe(spec.id, path))
        self._tasks[spec.id] = task
        self._launch(task)
        return task.seen

    async def stop(self, task_id: TaskId, grace_s: float, why: str) -> None:
        task = self._tasks.get(task_id)
        if task is None or task.seen.state == "exited":
            return
        write_stop(task.path, grace_s, why)
        self._see(task)
        self._point_to_stop(task)
        self._chore(self._see_to_end(task, grace_s))

    async def kill(self, task_id: TaskId) -> None:
        await self.stop(task_id, 0.0, "killed")

    async def list(self) -> Sequence[Observed]:
        for task in self._tasks.values():
            if task.seen.state == "running" and (task.path / LOST).exists():
                self._see(task)  # nothing else tells what was lost of its output
        return [self._tasks[task_id].seen for task_id in sorted(self._tasks)]

    async def remove(self, task_id: TaskId) -> None:
        task = self._tasks.get(task_id)
        if task is None:
            return
        if task.seen.state != "exited":
            raise RuntimeRefused(f"{_show(task_id)} has not ended; stop it first")
        forget(task.path)
        del self._tasks[task_id]
        self._sweep(task.path)

    def changes(self) -> AsyncIterator[Observed]:
        return aiter(self._feed)

    def log_dir(self, task_id: TaskId) -> str:
        return str(task_path(self._root, task_id) / LOG)

    async def exec(self, task_id: TaskId, request: ExecRequest) -> ExecSession:
        record, path = self._running_record(task_id)
        return await enter_task(record, path, request)

    def _running_record(self, task_id: TaskId) -> tuple[TaskRecord, Path]:
        """Raises RuntimeRefused."""
        task = self._tasks.get(task_id)
        record = read_record(str(task.path)) if task is not None and task.seen.state == "running" else None
        if task is None or record is None or record.boot_id != self._boot_id:
            raise RuntimeRefused(f"{_show(task_id)} does not run here")
        return record, task.path

    def _launch(self, task: Task) -> None:
        try:
            task.watch = ShimWatch.spawn(task.path, lambda: self._see(task), lambda: self._shim_ended(task))
        except OSError as error:
            self._end_unstarted(task, f"no shim could be started: {error.strerror}")

    def _also_written(self, spec: TaskSpec, path: Path) -> dict[str, Any]:
        """What a runtime adds to spec.json for itself."""
        return {}

    def _end_unstarted(self, task: Task, text: str, why: str = "lost", failure_class: str = "") -> None:
        end_without_shim(task.path, _now_ms(), text, lambda: True, why, failure_class)
        self._see(task)

    def _see(self, task: Task) -> None:
        seen = observe(task.id, task.path)
        if seen == task.seen:
            return
        began = task.seen.state == "starting" and seen.state == "running"
        task.seen = seen
        self._feed.push(seen)
        if began and task.watch is None:
            self._adopt(task)
        if began and seen.stopping:
            self._point_to_stop(task)

    def _point_to_stop(self, task: Task) -> None:
        """A shim that is still starting reads the order by itself; the signal could hit it before it can hear one."""
        if task.seen.state == "running" and task.watch is not None:
            task.watch.signal(signal.SIGTERM)

    def _adopt(self, task: Task) -> None:
        record = read_record(str(task.path))
        if record is None:
            self._chore(self._await_record(task))
        elif record.boot_id == self._boot_id:
            task.watch = ShimWatch.adopt(record.shim_pid, record.shim_start, lambda: self._shim_ended(task))
            if task.watch is None:
                self._shim_ended(task)
        else:
            self._chore(self._end_lost(task, None, "this host was restarted"))

    def _shim_ended(self, task: Task) -> None:
        task.watch = None
        if self._tasks.get(task.id) is not task:
            # Its end was read, and it was removed, before its shim had quite gone.
            return
        if (task.path / EXIT).exists():
            self._see(task)
            return
        record = read_record(str(task.path))
        self._chore(self._end_lost(task, record, "the process that watched over this task was killed"))

    async def _await_record(self, task: Task) -> None:
        """A shim that an earlier agent started a moment ago, or one that never came to be."""
        text = "the agent ended before it had started this task"

        def settled() -> bool:
            begun = read_record(str(task.path)) is not None or (task.path / EXIT).exists()
            return begun or self._write_end(task, None, text)

        await _until(settled)
        self._see(task)

    async def _end_lost(self, task: Task, record: TaskRecord | None, text: str) -> None:
        """Nothing is called ended while a process of it may be alive."""
        await _until(lambda: self._write_end(task, record, text))
        self._see(task)

    def _write_end(self, task: Task, record: TaskRecord | None, text: str) -> bool:
        def gone() -> bool:
            directory = str(task.path)
            return reach.kill_marked(directory) if record is None else reach.kill(record, directory)

        return end_without_shim(task.path, _now_ms(), text, gone)

    async def _see_to_end(self, task: Task, grace_s: float) -> None:
        await asyncio.sleep(grace_s + self.shim_late_s)
        record = read_record(str(task.path))
        if record is None or task.watch is None or task.seen.state == "exited":
            return
        await _until(lambda: reach.kill(record, str(task.path)))
        await asyncio.sleep(self.shim_late_s)
        if task.watch is not None:
            task.watch.signal(signal.SIGKILL)

    def _sweep(self, path: Path) -> None:
        """Beside everything else: what a task left in its working directory may be very much."""
        self._chore(asyncio.to_thread(clear, path))

    def _chore(self, work: Coroutine[None, None, None]) -> None:
        chore = asyncio.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)


async def _until(done: Callable[[], bool]) -> None:
    while True:
        if await asyncio.to_thread(done):
            return
        await asyncio.sleep(_POLL_S)


def _show(task_id: TaskId) -> str:
    return f"rank {task_id.rank} of {task_id.group_id}, attempt {task_id.attempt},"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
