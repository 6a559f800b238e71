"""Samples of this host's tasks over time, in a bounded file of its own. It is evidence, not state: a file that cannot
be used is put aside and begun anew, and a full disk costs samples and nothing else."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw
import msgpack

from agentd.core.telemetry_blob import CardNow

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_ROWS = 200_000
MOST_AGE_MS = 7 * 86_400_000
PRUNE_EVERY = 100
_FORMAT = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS sample(at_ms INTEGER NOT NULL, task TEXT NOT NULL, cpu REAL, step INTEGER, loss REAL,
                                  cards BLOB NOT NULL, PRIMARY KEY(task, at_ms)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_age ON sample(at_ms);
PRAGMA user_version = {_FORMAT};
"""


@dataclass(frozen=True, slots=True)
class TaskSample:
    """task: `GROUP.ATTEMPT.RANK`."""

    at_ms: int
    task: str
    cpu_percent: float | None
    step: int | None
    loss: float | None
    cards: tuple[CardNow, ...]


class History:
    """One connection on one thread; every call waits for its turn there."""

    def __init__(self, path: Path, most_rows: int = MOST_ROWS, most_age_ms: int = MOST_AGE_MS) -> None:
        self._path, self._most_rows, self._most_age_ms = path, most_rows, most_age_ms
        self._thread = ThreadPoolExecutor(1, "telemetry-history")
        self._db: apsw.Connection | None = None
        self._writes = 0
        self.dropped = 0
        """Samples that could not be kept."""

    async def add(self, samples: Sequence[TaskSample]) -> None:
        await self._in_thread(lambda: self._add(samples))

    async def read(self, task: str, since_ms: int, most: int) -> list[TaskSample]:
        """Oldest first; the newest `most` of them."""
        return await self._in_thread(lambda: self._read(task, since_ms, most))

    async def close(self) -> None:
        await self._in_thread(self._close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _add(self, samples: Sequence[TaskSample]) -> None:
        rows = [
            (s.at_ms, s.task, s.cpu_percent, s.step, s.loss, msgpack.packb([_packed(card) for card in s.cards]))
            for s in samples
        ]
        try:
            db = self._opened()
            with db:
                db.executemany(
                    "INSERT OR REPLACE INTO sample(at_ms, task, cpu, step, loss, cards) VALUES(?,?,?,?,?,?)", rows
                )
                self._writes += 1
                if self._writes % PRUNE_EVERY == 1:
                    self._prune(db, max(s.at_ms for s in samples))
        except apsw.Error as error:
            self._failed(error)
            self.dropped += len(rows)

    def _prune(self, db: apsw.Connection, now_ms: int) -> None:
        db.execute("DELETE FROM sample WHERE at_ms < ?", (now_ms - self._most_age_ms,))
        db.execute(
            "DELETE FROM sample WHERE at_ms <= (SELECT at_ms FROM sample ORDER BY at_ms DESC LIMIT 1 OFFSET ?)",
            (self._most_rows,),
        )

    def _read(self, task: str, since_ms: int, most: int) -> list[TaskSample]:
        try:
            found = self._opened().execute(
                "SELECT at_ms, task, cpu, step, loss, cards FROM sample WHERE task = ? AND at_ms > ? "
                "ORDER BY at_ms DESC LIMIT ?",
                (task, since_ms, most),
            )
            rows = list(found)
        except apsw.Error as error:
            self._failed(error)
            return []
        return [
            TaskSample(at_ms, name, cpu, step, loss, tuple(CardNow(*card) for card in msgpack.unpackb(cards)))
            for at_ms, name, cpu, step, loss, cards in reversed(rows)
        ]

    def _opened(self) -> apsw.Connection:
        if self._db is None:
            db = apsw.Connection(str(self._path))
            try:
                # Losing the last seconds with the power is fine; so no write waits for the disk.
                db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF")
                version = next(iter(db.execute("PRAGMA user_version")))[0]
                if version not in (0, _FORMAT):
                    raise apsw.NotADBError(f"its format is {version}, not {_FORMAT}")
                db.execute(_SCHEMA)
            except apsw.Error:
                db.close(True)
                raise
            self._db = db
        return self._db

    def _failed(self, error: apsw.Error) -> None:
        log.warning("telemetry history %s: %s", self._path, error)
        self._close()
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    Path(f"{self._path}{suffix}").replace(f"{self._path}.damaged{suffix}")

    def _close(self) -> None:
        if self._db is not None:
            self._db.close(True)
            self._db = None


def _packed(card: CardNow) -> tuple[object, ...]:
    return card.uuid, card.util, card.memory_mb, card.temperature_c, card.power_w
