"""A thread that owns one database, and the event loop's way to it: jobs in order, answers called back on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Done = Callable[[Any, BaseException | None], None]


class Worker:
    """Jobs run one after another in the order of submission. `idle` runs when nothing has come for idle_s."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Done | None] | None] = SimpleQueue()
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any], done: Done | None = None) -> None:
        """done(result, error) runs on the loop."""
        self._jobs.put((job, done))

    def ask(self, job: Callable[[], T]) -> T:
        """Run a job and wait for it, blocking the caller. For what is rare and short."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(job())
            except BaseException as error:
                answer.set_exception(error)

        self._jobs.put((run, None))
        return answer.result()

    async def call(self, job: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        self._jobs.put((job, done))
        return await answer

    def stop(self) -> None:
        """Let the jobs already submitted finish, then end the thread and wait for it."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        post = self._loop.call_soon_threadsafe
        while (item := self._jobs.get()) is not None:
            job, done = item
            result, error = None, None
            try:
                result = job()
            except BaseException as failure:
                error = failure
            if done is not None:
                post(done, result, error)
            del item, job, done, result, error
