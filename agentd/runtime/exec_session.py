"""One more program beside a running task, and the two ends of its streams."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ExecEnd:
    """Exactly one of exit_code and signal is set; both None where the end was not seen, and then text says why."""

    exit_code: int | None = None
    signal: int | None = None
    text: str = ""


class ExecSession(Protocol):
    """Nothing is buffered beyond a frame or two: a reader that stalls stalls the program."""

    async def read(self) -> tuple[int, bytes] | None:
        """(stream, bytes) as they come; None when there is no more."""

    async def write(self, data: bytes) -> None:
        """To the program; returns when it was taken. After its end: nothing."""

    async def write_eof(self) -> None:
        """No more input."""

    async def resize(self, rows: int, cols: int) -> None:
        """Of its terminal; without one nothing."""

    async def ended(self) -> ExecEnd:
        """How it ended, once `read` gave None."""

    async def close(self) -> None:
        """Ends the program where it still runs: SIGHUP, a moment later SIGKILL. Idempotent."""
