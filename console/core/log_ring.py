"""The newest lines of a log, bounded; search in them; and which of them are shown."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from console.core.format import width
from console.core.sanitize import sanitize

RING_LINES = 50_000
_SLACK = 5_000
TEXT_MAX = 4096  # characters of one line that are kept; the rest is counted
_ERROR = re.compile(r"\b(error|exception|traceback|fatal|panic|segfault|out of memory|oom|killed|nan)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LogLine:
    """stream: out, err, platform, or note for what the console says itself. rank -1: none."""

    rank: int
    attempt: int
    at: str
    stream: str
    text: str

    @property
    def shown(self) -> str:
        """With the sign of what the mesh says."""
        return f"◈ {self.text}" if self.stream == "platform" else self.text


class LogRing:
    """`first` is the number of the oldest line kept: lines keep their numbers while others fall out."""

    def __init__(self, most: int = RING_LINES) -> None:
        self._most = most
        self._lines: list[LogLine] = []
        self.first = 0

    def add(self, line: LogLine) -> None:
        self._lines.append(line)
        if len(self._lines) > self._most + _SLACK:
            gone = len(self._lines) - self._most
            del self._lines[:gone]
            self.first += gone

    @property
    def end(self) -> int:
        return self.first + len(self._lines)

    def __getitem__(self, number: int) -> LogLine:
        return self._lines[number - self.first]

    def numbered(self, start: int = 0) -> Iterator[tuple[int, LogLine]]:
        start = max(start, self.first)
        for at in range(start - self.first, len(self._lines)):
            yield self.first + at, self._lines[at]

    def find(self, words: str, start: int, back: bool = False) -> int | None:
        """The next line behind `start` that holds the words, without regard to case; going on at the other end."""
        wanted = words.lower()
        return self._next(lambda line: wanted in line.text.lower(), start, back)

    def find_error(self, start: int) -> int | None:
        return self._next(looks_bad, start, back=False)

    def _next(self, fits: "object", start: int, back: bool) -> int | None:
        assert callable(fits)
        count = len(self._lines)
        here = min(max(start - self.first, -1), count)
        for step in range(1, count + 1):
            at = (here - step if back else here + step) % count
            if fits(self._lines[at]):
                return self.first + at
        return None


def looks_bad(line: LogLine) -> bool:
    return _ERROR.search(line.text) is not None


def safe_text(raw: str) -> str:
    """Safe for a terminal and of a bounded length; what is cut is said."""
    cut = len(raw) - TEXT_MAX
    text = sanitize(raw[:TEXT_MAX])
    return f"{text} … {cut:,} more characters" if cut > 0 else text


def parts_of(text: str, cells: int) -> list[str]:
    """Pieces of at most so many terminal cells; no wide character is halved, and no text has one empty piece."""
    if cells < 2:
        return [text]
    if width(text) == len(text):
        return [text[at : at + cells] for at in range(0, len(text), cells)] or [""]
    parts, begin, used = [], 0, 0
    for at, item in enumerate(text):
        wide = width(item)
        if used + wide > cells:
            parts.append(text[begin:at])
            begin, used = at, 0
        used += wide
    return [*parts, text[begin:]]


class ShownLines:
    """Which lines of a ring stand on which row: all, or those that hold some words; cut, or broken to `cells`."""

    def __init__(self, ring: LogRing, only: str = "", cells: int = 0) -> None:
        self._ring, self._only, self._cells = ring, only.lower(), cells
        self._rows: list[tuple[int, int]] = []  # (line number, part)
        self._seen = 0
        self.direct = not only and not cells

    def catch_up(self) -> int:
        """Take in what came since; how many rows fell out at the top."""
        if self.direct:
            gone = self._ring.first - self._seen
            self._seen = self._ring.first
            return gone
        for number, line in self._ring.numbered(self._seen):
            if not self._only or self._only in line.text.lower():
                parts = 1 if not self._cells or line.stream == "note" else len(parts_of(line.shown, self._cells))
                self._rows += [(number, part) for part in range(parts)]
        self._seen = self._ring.end
        gone = next((at for at, (number, _) in enumerate(self._rows) if number >= self._ring.first), len(self._rows))
        del self._rows[:gone]
        return gone

    def count(self) -> int:
        return self._ring.end - self._ring.first if self.direct else len(self._rows)

    def at(self, row: int) -> tuple[int, int] | None:
        """(line number, part) of a row."""
        if self.direct:
            number = self._ring.first + row
            return (number, 0) if number < self._ring.end else None
        if row >= len(self._rows) or self._rows[row][0] < self._ring.first:
            return None
        return self._rows[row]

    def row_of(self, number: int) -> int | None:
        if self.direct:
            return number - self._ring.first if self._ring.first <= number < self._ring.end else None
        return next((at for at, (known, _) in enumerate(self._rows) if known == number), None)
