"""How a state looks: letter, word and tone together, so that none of them has to be seen."""

from typing import TYPE_CHECKING, NamedTuple

from console.core.format import STATUS_MARKS
from console.core.line import BAD, BUSY, DIM, GOOD, TEXT, WAIT, WARN

if TYPE_CHECKING:
    from console.store.rows import OutOfService


class Mark(NamedTuple):
    letter: str
    word: str
    tone: str
    badness: int  # the worse, the higher in a list and the stronger in a bucket of time

    @property
    def text(self) -> str:
        return f"{self.letter} {self.word}"


_TONES = {
    "running": (GOOD, 1),
    "completed": (DIM, 0),
    "stopped": (DIM, 0),
    "pending": (WAIT, 2),
    "scheduling": (BUSY, 3),
    "starting": (BUSY, 3),
    "stopping": (WARN, 4),
    "pausing": (WARN, 4),
    "paused": (WAIT, 2),
    "recovering": (WARN, 5),
    "failed": (BAD, 6),
}
_TASKS = {
    "bound": Mark("·", "bound", WAIT, 2),
    "claimed": Mark("S", "claimed", BUSY, 3),
    "starting": Mark("S", "starting", BUSY, 3),
    "running": Mark("R", "running", GOOD, 1),
    "lost": Mark("✖", "lost", BAD, 6),
    "cancelled": Mark("–", "cancelled", DIM, 0),
}
CORDONED = Mark("H", "cordon", WARN, 3)
STALLED = Mark("!", "stalled", WARN, 5)
QUIET = Mark("R", "running", WARN, 5)  # no step for minutes, and not every signal agrees that it is stalled


def group_mark(status: str) -> Mark:
    tone, badness = _TONES.get(status, (TEXT, 2))
    return Mark(STATUS_MARKS.get(status, "?"), status or "unknown", tone, badness)


def task_mark(status: str, exit_code: int | None, signal: int | None) -> Mark:
    """An exited rank is judged by how it ended."""
    if status != "exited":
        return _TASKS.get(status, Mark("?", status or "unknown", TEXT, 2))
    if signal is not None:
        return Mark("F", f"signal {signal}", BAD, 6)
    if exit_code == 0:
        return Mark("C", "exit 0", DIM, 0)
    return Mark("F", f"exit {exit_code}" if exit_code is not None else "no status", BAD, 6)


def node_mark(state: str, service: "OutOfService | None" = None) -> Mark:
    if state == "ready" and service is not None:
        return Mark("D", "empty" if service.empty else "drains", WARN, 3) if service.drained is not None else CORDONED
    if state == "ready":
        return Mark("R", "ready", GOOD, 1)
    if state == "lost":
        return Mark("✖", "lost", BAD, 6)
    return Mark("?", state or "unknown", TEXT, 2)
