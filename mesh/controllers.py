"""The controllers' shell: on the leader's host it feeds the picture, decides, and proposes in the term it decided in.

It owns I/O and its order only; what to propose is `mesh/core/control`. The client is one of this host's own voter (role
`controllers`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from mesh.client import MeshClient
from mesh.core.control.decide import Memory, Now, decide
from mesh.core.control.view import Tally, View
from schemas.errors import HeteroFlowError
from schemas.limits import BEAT_PERIOD_MS, DECIDE_BUDGET_MS

TICK_S = 1.0
RESTART_S = 1.0
TOGETHER = 32  # proposals in flight: more would only queue in the voter, before a user's own
# With more groups and nodes to look at, a pass may exceed 20 ms and runs beside the loop.
SMALL_PASS = 200
FRAMES_AT_ONCE = 100

# A burst of submissions on a long queue: each pass sees all that came in between, and the host keeps its cores.
SHORT_S = DECIDE_BUDGET_MS / 1000
REST_FACTOR = 3
REST_MAX_S = 0.5

_logger = logging.getLogger("heteroflow.controllers")


class Controllers:
    """`run` for as long as the agent lives; it acts only while this host's voter leads."""

    def __init__(self, client: MeshClient) -> None:
        self._client = client
        self._term: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._memory = Memory()
        self._decided_s = 0.0
        self._picture: _Picture | None = None
        self.passes = 0
        self.passes_s = 0.0

    @property
    def sentence(self) -> str:
        """What the last scheduler pass of this host decided, for people; empty while another host leads."""
        return self._memory.sentence if self._term is not None else ""

    @property
    def last_pass_s(self) -> float:
        return self._decided_s

    def tally(self) -> Tally | None:
        """Of the newest whole picture; None while another host leads, or none is here yet."""
        picture = self._picture
        return picture.view.tally() if picture is not None and picture.whole else None

    async def run(self) -> None:
        try:
            while True:
                leader = self._client.leader
                term = leader.term if leader is not None and leader.me else None
                if term != self._term:
                    await self._stop()
                    self._term = term
                    if term is not None:
                        _logger.info("controllers act in term %d", term)
                        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._lead(term))]
                await self._client.leader_change()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _beat(self) -> None:
        while True:
            try:
                await self._client.beat()
            except HeteroFlowError as error:
                _logger.debug("beat not taken: %s", error)
            await asyncio.sleep(BEAT_PERIOD_MS / 1000)

    async def _lead(self, term: int) -> None:
        """A defect here must not cost the mesh its leader: the pass starts over on a fresh picture, and the log says
        so."""
        while True:
            try:
                await self._control(term)
                return
            except HeteroFlowError as error:
                _logger.info("controllers start over: %s", error)
            except Exception:
                _logger.exception("a controller pass failed; it starts over in %.0f s", RESTART_S)
            await asyncio.sleep(RESTART_S)

    async def _control(self, term: int) -> None:
        self._memory = Memory()
        # Answered only after this term's first entry was applied here, so the snapshot that follows is no older
        # leader's picture.
        await self._client.query([{"get": ["meta", "cluster"]}], level="linearizable")
        picture = self._picture = _Picture()
        frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        reader = asyncio.create_task(self._read(frames))
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        picture.take(await frames.get())
                for taken in range(1, frames.qsize() + 1):
                    picture.take(frames.get_nowait())
                    if taken % FRAMES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                if reader.done():
                    await reader
                if picture.whole and not await self._pass(picture.view, term):
                    return
                await asyncio.sleep(rest_s(self._decided_s))
        finally:
            self._picture = None
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, HeteroFlowError):
                await reader

    async def _read(self, frames: asyncio.Queue[dict[str, Any]]) -> None:
        stream = self._client.subscribe({"active": True})
        try:
            async for frame in stream:
                frames.put_nowait(frame)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _pass(self, view: View, term: int) -> bool:
        """False when this term is over."""
        now = Now(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)
        began = time.monotonic()
        if view.size() <= SMALL_PASS:
            proposals = decide(view, now, self._memory)
        else:
            proposals = await asyncio.to_thread(decide, view, now, self._memory)
        self._decided_s = time.monotonic() - began
        self.passes += 1
        self.passes_s += self._decided_s
        for at in range(0, len(proposals), TOGETHER):
            answers = await asyncio.gather(
                *(self._propose(proposal, term) for proposal in proposals[at : at + TOGETHER])
            )
            if not all(answers):
                return False
        return True

    async def _propose(self, proposal: dict[str, Any], term: int) -> bool:
        """False when the leader's term is not the planned one any more. Everything else is decided anew at the next
        pass."""
        try:
            answer = await self._client.propose(proposal, term=term)
        except HeteroFlowError as error:
            _logger.info("%s was not taken: %s", proposal["t"], error)
            self._memory.planned = None
            return error.code != "planned_in_old_term"
        if answer["ok"] and answer["data"].get("changed", 1):
            self._memory.caught_up = max(self._memory.caught_up, answer["idx"])
        elif not answer["ok"]:
            _logger.info("%s was refused: %s", proposal["t"], answer["text"])
        return True


def rest_s(decided_s: float) -> float:
    """How long to wait after a pass: not at all after a short one."""
    return 0.0 if decided_s < SHORT_S else min(REST_FACTOR * decided_s, REST_MAX_S)


class _Picture:
    """A snapshot comes in parts, all with one token; nothing may be decided on half of one."""

    def __init__(self) -> None:
        self.view = View()
        self.whole = False
        self._loading: str | None = None

    def take(self, frame: dict[str, Any]) -> None:
        if "snapshot" not in frame:
            self.view.extend(frame["idx"], frame["changes"])
            return
        token = frame["token"]
        idx = int(token.rpartition(".")[2])
        if token == self._loading:
            self.view.extend(idx, frame["snapshot"])
        else:
            self.view.reset(idx, frame["snapshot"])
        self._loading = token if frame.get("more") else None
        self.whole = self._loading is None
