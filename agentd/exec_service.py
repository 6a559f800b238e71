"""Programs that people start beside the tasks of this host: how many, and never longer than the task."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import aiohttp

from agentd.runtime.base import Observed, RuntimeRefused, TaskId
from agentd.runtime.exec_session import ExecSession
from schemas.errors import Conflict, Overloaded
from schemas.exec_frames import ExecRequest

# A session is a process or two, a pty and a connection; people debug, programs do not poll this way.
SESSIONS_MAX, SESSIONS_OF_TASK_MAX = 32, 8


class ExecRuntime(Protocol):
    async def exec(self, task_id: TaskId, request: ExecRequest) -> ExecSession: ...


class ExecService:
    """session_to_peers: asks the other agents of the mesh."""

    def __init__(self, runtime: ExecRuntime, session_to_peers: aiohttp.ClientSession) -> None:
        self._runtime, self.session_to_peers = runtime, session_to_peers
        self._running: frozenset[TaskId] = frozenset()
        self._open: dict[asyncio.Event, TaskId] = {}

    def look(self, seen: Sequence[Observed]) -> None:
        """After each reconcile pass: sessions of tasks that run no more are ended."""
        self._running = frozenset(item.id for item in seen if item.state == "running")
        for over, task_id in self._open.items():
            if task_id not in self._running:
                over.set()

    @contextlib.asynccontextmanager
    async def session(self, task_id: TaskId, request: ExecRequest) -> AsyncIterator[tuple[ExecSession, asyncio.Event]]:
        """The session, and what is set when its task has ended. Raises Conflict, Overloaded."""
        if task_id not in self._running:
            raise Conflict(
                "rank_not_running",
                f"rank {task_id.rank} of {task_id.group_id} does not run on this host",
                "a program is started beside a running rank only; `heteroflow show` says where it is",
            )
        of_task = sum(one == task_id for one in self._open.values())
        if len(self._open) >= SESSIONS_MAX or of_task >= SESSIONS_OF_TASK_MAX:
            raise Overloaded(
                "too_many_sessions",
                f"{of_task} sessions are open on this rank and {len(self._open)} on its host; at most "
                f"{SESSIONS_OF_TASK_MAX} and {SESSIONS_MAX} may be",
                "close one of them",
            )
        over = asyncio.Event()
        self._open[over] = task_id
        try:
            try:
                made = await self._runtime.exec(task_id, request)
            except RuntimeRefused as error:
                raise Conflict("exec_refused", str(error), "see the log of the agent on that node") from error
            try:
                yield made, over
            finally:
                await made.close()
        finally:
            del self._open[over]
