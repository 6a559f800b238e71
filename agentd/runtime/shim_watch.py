"""Starting a shim and knowing when it ends, by pidfd: also for a shim that an earlier agent started."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from agentd.runtime.task_dir import SHIM_ERRORS
from agentd.shim.host import is_alive

_SHIM = str(Path(__file__).resolve().parent.parent / "shim" / "__main__.py")
# What the shim itself may see of the agent's environment; the task gets its own from the spec.
_INHERITED = ("PATH", "HETEROFLOW_TEST_FENCE")


class ShimWatch:
    """on_running, on_end: called on the loop, at most once each."""

    def __init__(self, pidfd: int, on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pidfd = pidfd
        self._ready = -1
        self._on_end = on_end
        self._loop.add_reader(pidfd, self._end)

    @classmethod
    def spawn(cls, path: Path, on_running: Callable[[], None], on_end: Callable[[], None]) -> "ShimWatch":
        ready, said = os.pipe()
        errors = os.open(path / SHIM_ERRORS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-E", _SHIM, str(path)],
                {name: os.environ[name] for name in _INHERITED if name in os.environ},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, said, 1),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD),
            )
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(said)
            os.close(errors)
        watch = cls(os.pidfd_open(pid), on_end)
        watch._ready = ready
        watch._loop.add_reader(ready, watch._hear, on_running)
        return watch

    @classmethod
    def adopt(cls, pid: int, start: int, on_end: Callable[[], None]) -> "ShimWatch | None":
        """None where that shim is no more. The start time is read behind the pidfd, so that it cannot be a stranger."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return None
        if is_alive(pid, start):
            return cls(pidfd, on_end)
        os.close(pidfd)
        return None

    def signal(self, number: int) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        self._close_ready()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _hear(self, on_running: Callable[[], None]) -> None:
        said = os.read(self._ready, 64)
        self._close_ready()
        if said:
            on_running()

    def _close_ready(self) -> None:
        if self._ready >= 0:
            self._loop.remove_reader(self._ready)
            os.close(self._ready)
            self._ready = -1

    def _end(self) -> None:
        # Ours is reaped here; one that an earlier agent started belongs to the guard.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        self.close()
        self._on_end()
