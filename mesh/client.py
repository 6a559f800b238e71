"""The way to the replicated state for everything outside the voters.

One client keeps one session to the first endpoint that answers and moves on when it fails; renewals and each
subscription have sessions of their own, so that neither a large answer nor a slow reader delays a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mesh.security.wire import Wire
from mesh.transport.dial import DIAL_ERRORS, Backoff, Dialer
from mesh.transport.session_client import SessionClient, SessionLost
from schemas.errors import HeteroFlowError, NoLeader, OutcomeUnknown

ATTEMPT_S = 4.0
"""How long one voter may think about a request that may safely be asked of another: beyond two elections it hangs."""
PREFER_EVERY_S = 5.0
HELLO_S = 2.0

_logger = logging.getLogger("heteroflow.client")
_NOT_DONE = frozenset({"no_leader", "overloaded", "disk_full"})
_LOOK_ELSEWHERE = frozenset({"no_leader", "lagging", "disk_full"})


@dataclass(frozen=True, slots=True)
class Leader:
    """me: the leader is the voter this client is connected to. applied: what that voter had applied at the time."""

    raft_id: int
    node: str | None
    term: int
    me: bool
    applied: int


class MeshClient(Protocol):
    """What VoterClient and MemoryMesh both offer."""

    @property
    def leader(self) -> Leader | None: ...

    async def leader_change(self) -> Leader | None:
        """Wait for the next change of the leader; None when none is known any more."""
        ...

    async def propose(
        self, command: dict[str, Any], timeout_s: float = 10.0, term: int | None = None
    ) -> dict[str, Any]:
        """{idx, ok, code, text, data} after the command was applied. A command with a `request` is retried safely
        until the timeout; one without is retried only while it surely was not taken. Raises HeteroFlowError:
        OutcomeUnknown when it may have happened, NoLeader, Overloaded, DiskFull, InvalidInput, and Conflict with
        code planned_in_old_term."""
        ...

    async def query(
        self,
        reads: Sequence[dict[str, Any]],
        level: str = "linearizable",
        min_idx: int | None = None,
        timeout_s: float = 10.0,
    ) -> dict[str, Any]:
        """{idx, age_ms, results}: one result a read, all of one moment."""
        ...

    def subscribe(self, feed_filter: dict[str, Any], token: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Frames for ever, across failovers, never going back, nothing repeated. The parts of a snapshot come
        together, once all of them have arrived."""
        ...

    async def renew(self, renewal: dict[str, Any], timeout_s: float = 3.0) -> dict[str, Any]: ...

    async def beat(self) -> None: ...

    async def status(self) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class VoterClient:
    """endpoints: paths of voter.sock and HOST:PORT of voters, preferred first; a callable is asked anew each time."""

    def __init__(
        self,
        endpoints: Sequence[str] | Callable[[], Sequence[str]],
        token: str,
        role: str = "agent",
        node: str = "",
        wire: Wire | None = None,
    ) -> None:
        source = endpoints if callable(endpoints) else lambda: endpoints
        self._dialer = Dialer(lambda: list(source()), token, wire)
        self._hello = {"role": role, "node": node}
        self._main = _Link(self._dialer, self._hello, self._pushed, self._main_lost)
        self._renewals = _Link(self._dialer, self._hello, lambda kind, value: None, lambda: None)
        self._leader: Leader | None = None
        self._changed = asyncio.Event()
        self._followed = self._closed = False

    @property
    def leader(self) -> Leader | None:
        """As `leader_change`: who asks for it now and then, and nothing else, is told of the next one too."""
        self._followed = not self._closed
        if self._leader is None and self._followed:
            self._main.dial()
        return self._leader

    @property
    def hello(self) -> dict[str, Any]:
        """What the voter of the present session said of itself; empty while there is none."""
        session = self._main.session
        return session.hello if session is not None else {}

    async def connect(self, timeout_s: float = 10.0) -> None:
        """Wait for the first session. The calls do it themselves when needed. Raises NoLeader."""
        async with _deadline(timeout_s, "no voter answers"):
            await self._main.get()

    async def leader_change(self) -> Leader | None:
        changed, self._followed = self._changed, True
        self._main.dial()
        await changed.wait()
        return self._leader

    def _pushed(self, kind: str, value: Any) -> None:
        if kind == "leader":
            known = bool(value["raft_id"])
            self._set_leader(Leader(**value) if known else None)

    def _main_lost(self) -> None:
        self._set_leader(None)
        if self._followed:
            # Nothing else may ever be called: who waits for the leader must not wait on a session that is gone.
            self._main.dial()

    def _set_leader(self, leader: Leader | None) -> None:
        if leader != self._leader:
            self._leader = leader
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def propose(
        self, command: dict[str, Any], timeout_s: float = 10.0, term: int | None = None
    ) -> dict[str, Any]:
        args: dict[str, Any] = {"command": command}
        if term is not None:
            args["term"] = term
        safe = command.get("request") is not None
        tries = _Tries(timeout_s)
        while (left := tries.left()) > 0:
            session: SessionClient | None = None
            try:
                session = await self._session(left)
                answer: dict[str, Any] = await session.call("propose", args, min(left, ATTEMPT_S) if safe else left)
                return answer
            except HeteroFlowError as error:
                tries.last = error
                if error.code not in _NOT_DONE and not (safe and error.code == "timeout_unknown"):
                    raise
            except (SessionLost, TimeoutError):
                if session is not None:
                    tries.last = OutcomeUnknown(
                        "timeout_unknown",
                        "the answer did not arrive; the command may have been accepted.",
                        "Retry with the same request id.",
                    )
                    if not safe:
                        raise tries.last from None
                    self._main.skip(session)
            await self._elsewhere(session, tries)
        raise tries.last

    async def query(
        self,
        reads: Sequence[dict[str, Any]],
        level: str = "linearizable",
        min_idx: int | None = None,
        timeout_s: float = 10.0,
    ) -> dict[str, Any]:
        args = {"level": level, "reads": list(reads), "min_idx": min_idx}
        tries = _Tries(timeout_s)
        while (left := tries.left()) > 0:
            session: SessionClient | None = None
            try:
                session = await self._session(left)
                answer: dict[str, Any] = await session.call("query", args, min(left, ATTEMPT_S))
                return answer
            except HeteroFlowError as error:
                tries.last = error
                if error.code not in _LOOK_ELSEWHERE:
                    raise
            except (SessionLost, TimeoutError):
                if session is not None:
                    self._main.skip(session)
            await self._elsewhere(session, tries)
        raise tries.last

    async def _session(self, left_s: float) -> SessionClient:
        """Raises TimeoutError when no voter answers in time."""
        session = self._main.ready()
        if session is not None:
            return session
        async with asyncio.timeout(left_s):
            return await self._main.get()

    async def _elsewhere(self, session: SessionClient | None, tries: _Tries) -> None:
        """A voter that knows no leader may be cut off while others are fine."""
        if session is not None and tries.last.code in _LOOK_ELSEWHERE and len(self._dialer.endpoints) > 1:
            self._main.skip(session)
        # A new leader ends the wait: it is what most retries wait for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tries.pause_s()):
                await self._changed.wait()

    async def subscribe(self, feed_filter: dict[str, Any], token: str | None = None) -> AsyncIterator[dict[str, Any]]:
        link = _Link(self._dialer, {**self._hello, "role": "probe"}, lambda kind, value: None, lambda: None)
        backoff = Backoff()
        try:
            while True:
                session: SessionClient | None = None
                try:
                    session = await link.get()
                    stream = session.stream("subscribe", {"filter": feed_filter, "token": token})
                    parts: list[dict[str, Any]] = []
                    while True:
                        frame = await stream.next()
                        backoff.reset()
                        parts.append(frame)
                        if frame.get("more"):
                            # A snapshot is handed on whole: a failover inside it would leave half of one.
                            continue
                        token = frame["token"]
                        for part in parts:
                            yield part
                        parts = []
                except SessionLost as error:
                    _logger.info("subscription lost (%s); resuming elsewhere", error)
                except HeteroFlowError as error:
                    if error.code not in ("lagging", "slow_consumer", "internal", "no_leader"):
                        raise
                    _logger.info("subscription ended (%s: %s); resuming", error.code, error)
                    if session is not None:
                        link.skip(session)
                await asyncio.sleep(backoff.pause_s())
        finally:
            await link.close()

    async def renew(self, renewal: dict[str, Any], timeout_s: float = 3.0) -> dict[str, Any]:
        session: SessionClient | None = None
        try:
            async with _deadline(timeout_s, "no voter answers"):
                session = await self._renewals.get()
                answer: dict[str, Any] = await session.call("renew", renewal, timeout_s)
                return answer
        except SessionLost as error:
            raise OutcomeUnknown("timeout_unknown", str(error), "Renew again.") from error
        except HeteroFlowError:
            # Another voter may know the leader, or reach it.
            if session is not None and len(self._dialer.endpoints) > 1:
                self._renewals.skip(session)
            raise

    async def beat(self) -> None:
        """Raises HeteroFlowError where no voter hears it: a beat that is lost ends nobody."""
        try:
            async with _deadline(ATTEMPT_S, "no voter answers"):
                session = await self._main.get()
                await session.call("beat", {}, ATTEMPT_S)
        except SessionLost as error:
            raise OutcomeUnknown("timeout_unknown", str(error), "Beat again.") from error

    async def status(self) -> dict[str, Any]:
        session = await self._main.get()
        answer: dict[str, Any] = await session.call("status", {}, ATTEMPT_S)
        return answer

    async def close(self) -> None:
        self._followed, self._closed = False, True
        await self._main.close()
        await self._renewals.close()
        await self._dialer.close()


class _Link:
    """One session at a time, dialled when asked for. Away from the first endpoint, usually this host's own voter,
    it looks now and then whether that is back."""

    def __init__(
        self, dialer: Dialer, hello: dict[str, str], on_push: Callable[[str, Any], None], on_lost: Callable[[], None]
    ) -> None:
        self._dialer, self._hello, self._on_push, self._on_lost = dialer, hello, on_push, on_lost
        self.session: SessionClient | None = None
        self._dialling: asyncio.Task[SessionClient] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._at = 0
        self._start = 0
        self._opened_at = 0.0

    def ready(self) -> SessionClient | None:
        """The open session, if there is one."""
        session = self.session
        if session is None or session.lost or self._dialling is not None:
            return None
        self._maybe_return()
        return session

    async def get(self) -> SessionClient:
        """The open session, or a new one. Tries for ever; the caller brings the timeout."""
        session = self.ready()
        if session is not None:
            return session
        return await asyncio.shield(self._dialled_task())

    def dial(self) -> None:
        """Open a session in the background where there is none."""
        if self.ready() is None:
            self._dialled_task()

    def _dialled_task(self) -> asyncio.Task[SessionClient]:
        if self._dialling is None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial())
            self._dialling.add_done_callback(self._dialled)
        return self._dialling

    def _dialled(self, task: asyncio.Task[SessionClient]) -> None:
        self._dialling = None
        if not task.cancelled():
            task.exception()
            if self.session is None:
                self._on_lost()  # lost again between the hello and this moment

    async def _dial(self) -> SessionClient:
        backoff = Backoff()
        while True:
            endpoints = self._dialer.endpoints
            start = self._start if self._start < len(endpoints) else 0
            self._start = 0
            for step in range(len(endpoints)):
                at = (start + step) % len(endpoints)
                session = await self._try(endpoints, at)
                if session is not None:
                    return session
            await asyncio.sleep(backoff.pause_s())

    async def _try(self, endpoints: list[str], at: int) -> SessionClient | None:
        """The session there is stays until the new one is greeted: a voter that hangs can still be dialled."""
        early: list[tuple[str, Any]] = []
        session = SessionClient(partial(self._pushed, early), self._lost)
        try:
            session.carrier = await self._dialer.dial(endpoints[at], session.on_frame, session.carrier_lost)
            hello = await session.call("hello", dict(self._hello), HELLO_S)
            if session.lost:
                return None
        except (*DIAL_ERRORS, HeteroFlowError) as error:
            _logger.debug("voter at %s does not answer (%s: %s)", endpoints[at], type(error).__name__, error)
            session.close()
            return None
        except BaseException:
            session.close()
            raise
        session.hello = hello
        before, self.session, self._at = self.session, session, at
        self._opened_at = asyncio.get_running_loop().time()
        if before is not None:
            before.retire()
        for kind, value in early:
            self._on_push(kind, value)
        return session

    def _maybe_return(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._at and self._returning is None and now - self._opened_at > PREFER_EVERY_S:
            self._opened_at = now
            self._returning = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        try:
            await self._try(self._dialer.endpoints, 0)
        finally:
            self._returning = None

    def _pushed(self, early: list[tuple[str, Any]], session: SessionClient, kind: str, value: Any) -> None:
        """early: pushes that came with the answer to the hello, before this session was the one."""
        if session is self.session:
            self._on_push(kind, value)
        elif not session.hello:
            early.append((kind, value))

    def _lost(self, session: SessionClient) -> None:
        if session is self.session:
            self.session = None
            self._on_lost()

    def skip(self, session: SessionClient) -> None:
        """Leave this session for the next endpoint."""
        if session is self.session:
            self._start = self._at + 1
            session.close()

    async def close(self) -> None:
        for task in (self._dialling, self._returning):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self.session is not None:
            self.session.close()


class _Tries:
    """Attempts at one call until its deadline; `last` is what it fails with."""

    def __init__(self, timeout_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._deadline = self._now() + timeout_s
        self._backoff = Backoff()
        self.last: HeteroFlowError = NoLeader(
            "no_leader", f"no voter has answered for {timeout_s:.0f} s.", "Try again later."
        )

    def left(self) -> float:
        return self._deadline - self._now()

    def pause_s(self) -> float:
        return max(0.0, min(self._backoff.pause_s(), self.left()))


@contextlib.asynccontextmanager
async def _deadline(timeout_s: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise NoLeader("no_leader", f"{what} for {timeout_s:.0f} s.", "Try again later.") from error
