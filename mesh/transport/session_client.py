"""The client's end of one session: numbered requests, streams and pushes over one carrier."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from mesh.transport.carrier import Carrier
from mesh.transport.codec import WireFault, pack, unpack
from schemas.errors import (
    Conflict,
    Expired,
    HeteroFlowError,
    InvalidInput,
    NotAuthorised,
    NotFound,
    Problem,
    Unavailable,
    error_for,
)

STREAM_HIGH, STREAM_LOW = 256, 64
_BY_STATUS: dict[int, type[HeteroFlowError]] = {
    400: InvalidInput,
    401: NotAuthorised,
    404: NotFound,
    409: Conflict,
    410: Expired,
    503: Unavailable,
}


class SessionLost(ConnectionError):
    """Raised for what was under way when the connection ended: it may or may not have been done."""


def error_of(problem: Problem) -> HeteroFlowError:
    """The exception of a problem: by its code, else by its status."""
    default = _BY_STATUS.get(problem.status, HeteroFlowError)
    error = error_for(problem.code, problem.message, problem.hint, default)
    error.problem = problem
    return error


def _packed(number: int, op: str, args: dict[str, Any]) -> bytes:
    """Raises InvalidInput, as the voter would, had it ever come there."""
    try:
        return pack([number, op, args])
    except UnicodeEncodeError as error:
        code = "invalid_command" if op == "propose" else "invalid_query"
        raise InvalidInput(code, f"a {op} holds half of a surrogate pair, which is no text") from error


class SessionClient:
    """on_push(self, kind, value) runs for pushes, on_lost(self) once at the end."""

    def __init__(
        self, on_push: Callable[[SessionClient, str, Any], None], on_lost: Callable[[SessionClient], None]
    ) -> None:
        self.carrier: Carrier | None = None
        self.lost = False
        self._retiring = False
        self.hello: dict[str, Any] = {}
        self._on_push, self._on_lost = on_push, on_lost
        self._number = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._streams: dict[int, Stream] = {}

    def on_frame(self, payload: bytes) -> None:
        answer = unpack(payload)
        if not isinstance(answer, list) or len(answer) != 3:
            raise WireFault("an answer is [id, kind, value]")
        number, kind, value = answer
        if number == 0:
            self._on_push(self, kind, value)
        elif (stream := self._streams.get(number)) is not None:
            stream.take(kind, value)
        elif (future := self._calls.pop(number, None)) is not None:
            if future.done():
                pass
            elif kind == "ok":
                future.set_result(value)
            else:
                future.set_exception(error_of(Problem.from_dict(value if isinstance(value, dict) else {})))
            if self._retiring and not self._calls:
                self.close()

    def carrier_lost(self, reason: str) -> None:
        if self.lost:
            return
        self.lost = True
        error = SessionLost(f"the connection to the voter ended: {reason}")
        for future in self._calls.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # the caller may be gone already; that is no error of its own
        self._calls.clear()
        for stream in self._streams.values():
            stream.fail(error)
        self._on_lost(self)

    def send(self, op: str, args: dict[str, Any]) -> asyncio.Future[Any]:
        if self.lost or self.carrier is None:
            raise SessionLost("the connection to the voter ended")
        self._number += 1
        packed = _packed(self._number, op, args)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[self._number] = future
        self.carrier.send(packed)
        return future

    async def call(self, op: str, args: dict[str, Any], timeout_s: float) -> Any:
        """Raises HeteroFlowError as answered, SessionLost, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            return await self.send(op, args)

    def stream(self, op: str, args: dict[str, Any]) -> Stream:
        if self.lost or self.carrier is None:
            raise SessionLost("the connection to the voter ended")
        self._number += 1
        packed = _packed(self._number, op, args)
        stream = Stream(self.carrier)
        self._streams[self._number] = stream
        self.carrier.send(packed)
        return stream

    def retire(self) -> None:
        """Close after the answers under way have come."""
        self._retiring = True
        if not self._calls:
            self.close()

    def close(self) -> None:
        if self.carrier is not None:
            self.carrier.close()


class Stream:
    """Items of one subscription. The carrier is paused while the reader is behind, so it carries nothing else."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._items: deque[Any] = deque()
        self._error: Exception | None = None
        self._wake = asyncio.Event()
        self._paused = False

    def take(self, kind: str, value: Any) -> None:
        if kind == "item":
            self._items.append(value)
            if len(self._items) >= STREAM_HIGH and not self._paused:
                self._paused = True
                self._carrier.pause()
        elif kind == "end":
            self._error = StopAsyncIteration()
        else:
            self._error = error_of(Problem.from_dict(value if isinstance(value, dict) else {}))
        self._wake.set()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._wake.set()

    async def next(self) -> Any:
        """Raises HeteroFlowError, SessionLost, or StopAsyncIteration at the end."""
        while not self._items:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        item = self._items.popleft()
        if self._paused and len(self._items) <= STREAM_LOW:
            self._paused = False
            self._carrier.resume()
        return item
