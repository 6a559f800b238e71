"""The contract of runtimes: what starts, stops and watches the tasks of one host.

`tests/contract/test_runtime.py` is the contract; `process`, `docker` and `memory` pass it.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agentd.runtime.exec_session import ExecSession
from schemas.exec_frames import ExecRequest

State = Literal["starting", "running", "exited"]
# exited: by itself. stopped: after our stop. fenced: the lease of this host ran out. killed: by a signal that was not
# ours. start_failed: no process came to be. lost: its end was not seen, all of it is verified gone.
Why = Literal["", "exited", "stopped", "fenced", "killed", "start_failed", "lost"]


class RuntimeRefused(Exception):
    """The runtime will not do what was asked: what, why, what to do."""


class ImageUnavailable(Exception):
    """The image cannot be had here: what, why, what to do. permanent: the request's own fault, on every node."""

    def __init__(self, text: str, code: str = "image_pull_permanent", permanent: bool = True) -> None:
        super().__init__(text)
        self.code, self.permanent = code, permanent


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    group_id: str
    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class Mount:
    """own: made by the agent for this very task, and not named by its document."""

    source: str
    target: str
    read_only: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Small files: whoever resumes somewhere skims one from its beginning."""

    max_bytes: int = 4 << 20
    files: int = 64


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """What only a runtime with images looks at. 0 means no limit; shm_bytes 0 means what the runtime gives."""

    image: str
    pull: Literal["missing", "never", "always"] = "missing"
    shm_bytes: int = 0
    memory_bytes: int = 0
    cpus: float = 0.0
    user: str = ""
    ulimits: Mapping[str, int] = field(default_factory=dict)
    read_only_root: bool = False


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """token: log index of the bind. Exactly one of argv and shell. env is the whole environment of the task."""

    id: TaskId
    token: int
    argv: Sequence[str] = ()
    shell: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    gpus: Sequence[str] = ()
    stop_grace_s: float = 30.0
    on_isolation: Literal["stop", "keep"] = "stop"
    mounts: Sequence[Mount] = ()
    log: LogLimits = LogLimits()
    container: ContainerOptions | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """exit_code is set for a process that ended itself, signal for one ended by a signal; both None until exited, and
    both None where the end was not seen (start_failed, lost). text: an error for people. gpus: held until removed.
    log_lost: at least so many bytes of its output are missing from its log. image: `{id, digest}` of what the container
    was made of; digest None where no registry gave it. failure_class: where the runtime knows it."""

    id: TaskId
    token: int
    state: State
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    why: Why = ""
    text: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    stopping: bool = False
    gpus: tuple[str, ...] = ()
    log_lost: int = 0
    image: Mapping[str, str | None] | None = None
    failure_class: str = ""


class Runtime(Protocol):
    name: str
    # Whether tasks see the host's own paths: then the variables that name mounts carry `Mount.source`.
    host_paths: bool

    @property
    def trouble(self) -> str:
        """Why nothing can be started here now, in the words of its beginning; empty where nothing is known."""

    async def open(self) -> None:
        """Adopts what an earlier agent left. Before anything else."""

    async def close(self) -> None:
        """Lets go of the tasks; they run on."""

    async def get_image(self, options: ContainerOptions, say: Callable[[str], None]) -> None:
        """Has the image here as `options.pull` asks; may take hours, and ends when cancelled. say: takes how far it is.

        Raises ImageUnavailable."""

    async def start(self, spec: TaskSpec) -> Observed:
        """Idempotent per task id: a task that was ever started here, ended or not, is observed, not started again.

        Raises RuntimeRefused for a second token under one id."""

    async def stop(self, task_id: TaskId, grace_s: float, why: str) -> None:
        """SIGTERM to the real processes, SIGKILL of everything after `grace_s`. Returns at once. A repeated stop may
        shorten the grace, never lengthen it. Of an unknown or exited task: nothing."""

    async def kill(self, task_id: TaskId) -> None: ...

    async def list(self) -> Sequence[Observed]:
        """Every task of this host not yet removed, by id."""

    async def remove(self, task_id: TaskId) -> None:
        """Forgets an exited task and keeps its log. Raises RuntimeRefused for one that has not exited."""

    def changes(self) -> AsyncIterator[Observed]:
        """Each change from the first `__anext__` on; one consumer at a time."""

    def log_dir(self, task_id: TaskId) -> str: ...

    async def exec(self, task_id: TaskId, request: ExecRequest) -> ExecSession:
        """One more program beside a running task: its user, environment, directory and walls. Ends with the task.

        Raises RuntimeRefused."""
