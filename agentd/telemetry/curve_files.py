"""Event files of this host's groups: followed while a group runs here, and opened for whoever asks.

A share can hang. All directories are read one after the other in one thread; the one that keeps it waiting is left to
that thread, said to be unreachable, and the others go on in a new one.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from agentd.telemetry.blocking_look import BlockingLook
from agentd.telemetry.event_files import EventFiles
from schemas.rules.tfevents.run_state import LIVE, STALE, RunState, run_state

log = logging.getLogger(__name__)
T = TypeVar("T")
TB_DIR = "tb_logs"
_HANGS_S = 5.0
_ASKED_READ_S, _FOLLOWED_READ_S = 3.0, 0.5
_FOR_EVER_S = 86_400.0
_UNUSED_S = 60.0
PROBE_FAILED = "probe_failed"
_STILL_READING = RunState(LIVE, "its event files are long and still being read")


class CurvesUnreachable(Exception):
    """The directory does not answer: which, for how long."""


class Logs(NamedTuple):
    """Where a group writes its event files. checkpoint_path: None where it has none. loss_tag: as the user said."""

    checkpoint_path: str | None
    loss_tag: str | None = None

    @property
    def root(self) -> str | None:
        return None if self.checkpoint_path is None else f"{self.checkpoint_path.rstrip('/')}/{TB_DIR}"


class _Open:
    """One directory. Touched by one thread at a time."""

    def __init__(self, logs: Logs, root: str) -> None:
        self.logs, self.root = logs, root
        self.files = EventFiles(root)
        self.state: RunState | None = None
        self.more = False
        self.used = 0.0
        self.stuck: BlockingLook | None = None
        self._revision = -1
        self._outside = False

    def turn(self) -> None:
        if self._outside and self._leads_outside():
            return
        self.more = self.files.turn()
        if self._revision != self.files.revision or self.files.problems:
            # After the reading, because idle runs shall cost nothing; what was read outside is told to nobody.
            if self._leads_outside():
                return
            self._revision = self.files.revision
            self.state = run_state(self.files.tree, time.time(), self.logs.loss_tag, float("inf"))
            if self.state.last is None and (trouble := self.files.problems.get(self.root)):
                self.state = RunState(PROBE_FAILED, f"{self.root} {trouble}")

    def _leads_outside(self) -> bool:
        """A task can put a link in the place of its log directory; what that points at is none of its business."""
        volume = self.logs.checkpoint_path or "/"
        real, allowed = os.path.realpath(self.root), os.path.realpath(volume)
        self._outside = real != allowed and not real.startswith(allowed.rstrip("/") + "/")
        if self._outside:
            self.files, self.more, self._revision = EventFiles(self.root), False, -1
            self.state = RunState(PROBE_FAILED, f"{self.root} is a link that leads out of {volume}")
        return self._outside

    def read_on(self, most_s: float) -> None:
        """To the end, or as far as it gets in that time."""
        self.turn()
        if self.more:
            until = time.monotonic() + most_s
            while self.more and time.monotonic() < until:
                self.turn()


class CurveFiles:
    """stale_after_s: how old the newest point of a group that runs may be."""

    def __init__(self, stale_after_s: float) -> None:
        self._stale_after_s = stale_after_s
        self._stale_text = f"the newest point is older than {stale_after_s:g} s"
        self._open: dict[Logs, _Open] = {}
        self._swept = time.monotonic()
        self._look = BlockingLook()
        self._turn = asyncio.Lock()

    async def follow(self, wanted: Iterable[Logs]) -> dict[str, RunState]:
        """Reads on in each; `{root: state}` of those that answered ever."""
        self._close_unused()
        runs = [run for logs in wanted if (run := self._opened(logs)) is not None]
        ready = [run for run in runs if not self._is_stuck(run)]
        if ready:
            await self._in_turn(ready, lambda run: run.read_on(_FOLLOWED_READ_S))
        now_s = time.time()
        return {
            # The newest point of a file that is read half is not the newest.
            run.root: self._now(run, now_s) if run.stuck is not None or not run.more else _STILL_READING
            for run in runs
            if run.state is not None or run.stuck is not None
        }

    async def read(self, logs: Logs, runs: bool, look: Callable[[EventFiles, RunState], T]) -> T:
        """look: called in the reading thread. runs: whether points are still to come, so that old ones are stale.

        Raises CurvesUnreachable."""
        run = self._opened(logs)
        assert run is not None
        found: list[T] = []

        def read(run: _Open) -> None:
            run.read_on(_ASKED_READ_S)
            found.append(look(run.files, self._now(run, time.time(), runs)))

        if not self._is_stuck(run):
            await self._in_turn([run], read)
        if not found:
            raise CurvesUnreachable(f"{run.root} has not answered for {_HANGS_S:g} s: is the share there?")
        return found[0]

    def _opened(self, logs: Logs) -> _Open | None:
        run = self._open.get(logs)
        if run is None:
            if (root := logs.root) is None:
                return None
            run = self._open[logs] = _Open(logs, root)
        run.used = time.monotonic()
        return run

    def _close_unused(self) -> None:
        """The points of a directory stay in memory while somebody may soon look at it again."""
        now = time.monotonic()
        if now - self._swept > _UNUSED_S:
            self._swept = now
            since = now - _UNUSED_S
            self._open = {logs: run for logs, run in self._open.items() if run.used >= since or run.stuck is not None}

    def _is_stuck(self, run: _Open) -> bool:
        if run.stuck is not None and not run.stuck.hangs:
            run.stuck = None
        return run.stuck is not None

    async def _in_turn(self, runs: list[_Open], work: Callable[[_Open], None]) -> None:
        # Whoever asked may leave: what was begun is ended all the same, or the next turn would find it under way.
        await asyncio.shield(asyncio.ensure_future(self._in_thread(runs, work)))

    async def _in_thread(self, runs: list[_Open], work: Callable[[_Open], None]) -> None:
        """Until done, or until one has kept the thread waiting for too long: that one is marked, the rest waits for
        the next turn."""
        async with self._turn:
            mine, at = self._look, list[_Open]()

            def all_of_them() -> None:
                for run in runs:
                    if self._look is mine:
                        at.append(run)
                        work(run)

            task = asyncio.ensure_future(mine.take(_FOR_EVER_S, all_of_them))
            while True:
                before = len(at)
                done, _ = await asyncio.wait({task}, timeout=_HANGS_S)
                if done:
                    task.result()
                    return
                if len(at) == before and at:
                    at[-1].stuck, self._look = mine, BlockingLook()
                    log.warning("%s does not answer; its curves wait for it", at[-1].root)
                    task.cancel()
                    return

    def _now(self, run: _Open, now_s: float, runs: bool = True) -> RunState:
        """The state as of this moment: age and staleness grow without anything being read."""
        if run.stuck is not None or run.state is None:
            return RunState(PROBE_FAILED, f"{run.root} does not answer: is the share there?")
        state, text, loss, last, _ = run.state
        if last is None:
            return run.state
        age_s = now_s - last.wall
        if runs and state == LIVE and not age_s <= self._stale_after_s:
            state, text = STALE, self._stale_text
        return RunState(state, text, loss, last, age_s)
