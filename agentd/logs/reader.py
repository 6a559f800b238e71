"""The agent's end of a log: lines by tail, by offset, and onward. Blocking: not on a loop."""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from agentd.core.frames import (
    ERR,
    OUT,
    PLATFORM,
    SEGMENT_BYTES,
    Frame,
    Segment,
    Skimmed,
    segment_base,
    segment_name,
    skim_frames,
    unpack_frame,
    unpack_segment,
)
from agentd.core.log_window import Line, LineJoiner

# How often one who follows looks again: a look at an idle log costs some ten microseconds, and nobody sees the delay.
POLL_S = 0.05
_BLOCK = 1 << 20
_GROUP = 64
TAIL_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class Dropped:
    """`size` bytes of log before `offset` are gone. why: "rotated" or "damaged"."""

    offset: int
    size: int
    why: str


class LogReader:
    """A position in one log directory. `read` goes on from it; an empty answer means there is nothing more yet."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._position = 0
        self._after = 0
        self._joiner = LineJoiner()
        self._fd = -1
        self._base = 0
        self._sought = False

    def seek(self, offset: int) -> None:
        """The next `read` begins with the first line that ends after `offset`."""
        self._close_segment()
        self._after = self._position = offset
        self._sought = False

    def read(self, limit: int = 4096) -> list[Line | Dropped]:
        """At least the lines of one frame, where there is one; stops at the first frame that fills `limit`, or after a
        megabyte or so of text: a line alone may have one."""
        items: list[Line | Dropped] = []
        if not self._sought and not self._find(items):
            return items
        size = counted = 0
        while len(items) < limit and size < _BLOCK:
            before = self._position
            self._read_block(items, limit)
            size += sum(len(item.text) for item in items[counted:] if isinstance(item, Line))
            counted = len(items)
            if self._position == before and not self._next_segment(items):
                break
        return items

    def finish(self) -> list[Line | Dropped]:
        """To be called once the log is over and `read` gave nothing: damage at the end, unfinished lines."""
        items: list[Line | Dropped] = []
        self._say_damaged_end(items)
        items += [line for line in self._joiner.finish(self._position) if line.offset > self._after]
        return items

    def tail(self, lines: int) -> list[Line]:
        """The last lines as a terminal would show them: overwritten progress lines left out. `read` goes on behind.
        Fewer than asked for where they have more than TAIL_MAX characters together."""
        self.seek(self._tail_offset(lines))
        # A task may print faster than this reads: the tail is that of now.
        end = self._end_now()
        kept: deque[Line] = deque(maxlen=max(lines, 1))
        size = 0
        overwritable: dict[int, Line] = {}
        while self._position < end and (batch := self.read()):
            for item in batch:
                if isinstance(item, Dropped):
                    continue
                if item.end == "\r":
                    overwritable[item.stream] = item
                else:
                    overwritable.pop(item.stream, None)
                    size += len(item.text) - (len(kept[0].text) if len(kept) == kept.maxlen else 0)
                    kept.append(item)
                    while size > TAIL_MAX and len(kept) > 1:
                        size -= len(kept.popleft().text)
        # In order of offsets, so that the last one given is where a reader goes on.
        shown = sorted([*kept, *overwritable.values()], key=lambda line: line.offset)
        return shown[-lines:] if lines > 0 else []

    def close(self) -> None:
        self._close_segment()

    def _bases(self) -> list[int]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return sorted(base for base in map(segment_base, names) if base is not None)

    def _find(self, items: list[Line | Dropped]) -> bool:
        """Opens the segment from which every line after the wanted offset can be joined in full."""
        bases = self._bases()
        if not bases:
            return False
        self._joiner = LineJoiner()
        if self._after < bases[0]:
            items.append(Dropped(bases[0], bases[0] - self._after, "rotated"))
            self._after = bases[0]
        holding = max(base for base in bases if base <= self._after)
        if not self._open_segment(holding):
            return False
        start = self._whole_from()
        if start is None:
            header = self._header()
            earlier = [base for base in bases if header is not None and base <= header.open_from]
            if not self._open_segment(max(earlier, default=bases[0])):
                return False
        self._position = self._base if start is None else start
        self._sought = True
        return True

    def _whole_from(self) -> int | None:
        """Where to begin in the open segment so that every line open at the wanted offset is read from its head; None
        where that is in an earlier segment."""
        header = self._header()
        unseen = self._base if header is not None and header.open_from == self._base else None
        heads: dict[int, int | None] = {OUT: unseen, ERR: unseen}
        closed = {OUT: unseen is not None, ERR: unseen is not None}
        start = self._base
        for skimmed in self._skim():
            if skimmed.end > self._after:
                start = skimmed.offset
                break
            start = skimmed.end
            if skimmed.stream != PLATFORM:
                closed[skimmed.stream] = skimmed.closed
                if not skimmed.continues:
                    heads[skimmed.stream] = skimmed.offset
        open_heads = [heads[stream] for stream in (OUT, ERR) if not closed[stream]]
        known = [head for head in open_heads if head is not None]
        return min([start, *known]) if len(known) == len(open_heads) else None

    def _header(self) -> Segment | None:
        return unpack_segment(os.pread(self._fd, SEGMENT_BYTES, 0))

    def _skim(self) -> Iterator[Skimmed]:
        """The frames of the open segment by their headers, without a look at what they hold."""
        position = self._base
        while True:
            data = os.pread(self._fd, _BLOCK, SEGMENT_BYTES + position - self._base)
            at = 0
            for skimmed in skim_frames(data, position):
                at = skimmed.end - position
                yield skimmed
            if at == 0:
                return
            position += at

    def _end_now(self) -> int:
        bases = self._bases()
        if not bases or not self._open_segment(bases[-1]):
            return 0
        end = bases[-1] + os.fstat(self._fd).st_size - SEGMENT_BYTES
        self._close_segment()
        return end

    def _open_segment(self, base: int) -> bool:
        self._close_segment()
        try:
            self._fd = os.open(
                os.path.join(self._directory, segment_name(base)), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except FileNotFoundError:
            return False
        self._base = base
        return True

    def _close_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read_block(self, items: list[Line | Dropped], limit: int) -> None:
        for frame in self._frames(self._position):
            self._position = frame.end
            items.extend(line for line in self._joiner.feed(frame) if line.offset > self._after)
            if items:
                self._after = max(self._after, items[-1].offset)
            if len(items) >= limit:
                return

    def _frames(self, position: int) -> Iterator[Frame]:
        """Whole frames of one block from `position`; ends quietly at what is not (yet) whole."""
        data = os.pread(self._fd, _BLOCK, SEGMENT_BYTES + position - self._base)
        at = 0
        while True:
            try:
                frame = unpack_frame(data, at, position + at)
            except ValueError:
                return
            if frame is None:
                return
            at += frame.end - frame.offset
            yield frame

    def _next_segment(self, items: list[Line | Dropped]) -> bool:
        if os.path.exists(os.path.join(self._directory, segment_name(self._position))) and self._position > self._base:
            return self._open_segment(self._position)
        later = [base for base in self._bases() if base > self._position]
        if not later:
            return False
        # Segments follow one another without a gap, so what lies between was rotated away, or cannot be read.
        why = "damaged" if os.path.exists(os.path.join(self._directory, segment_name(self._base))) else "rotated"
        if not self._open_segment(later[0]):
            return True
        items += self._joiner.finish(self._position)
        items.append(Dropped(later[0], later[0] - self._position, why))
        self._joiner = LineJoiner()
        self._position = self._after = later[0]
        return True

    def _say_damaged_end(self, items: list[Line | Dropped]) -> None:
        if self._fd < 0:
            return
        rest = os.fstat(self._fd).st_size - SEGMENT_BYTES - (self._position - self._base)
        if rest > 0:
            items.append(Dropped(self._position + rest, rest, "damaged"))

    def _tail_offset(self, lines: int) -> int:
        """Behind which at least `lines` lines end, if there are as many, and not very many more."""
        bases = self._bases()
        for base in reversed(bases):
            if not self._open_segment(base):
                break
            groups = [(base, 0)]
            for number, skimmed in enumerate(self._skim()):
                if number % _GROUP == 0:
                    groups.append((skimmed.offset, 0))
                groups[-1] = (groups[-1][0], groups[-1][1] + skimmed.lines)
            for offset, ended in reversed(groups):
                lines -= ended
                if lines <= 0:
                    return offset
        return bases[0] if bases else 0
