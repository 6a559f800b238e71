"""Frames in, lines out: joins a line that came in many pieces, ends it at LF, CRLF or a lone CR, and bounds its length.

A line is named by the offset after it; offsets grow strictly from line to line over both streams and depend on nothing
but the frames on disk, so `everything after offset X` means the same to every reader.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agentd.core.frames import AFTER_LOSS, CONTINUES, FRAME_BYTES, PLATFORM, Frame

LINE_CAP = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """`text + end` are the bytes as written, save bytes that are not UTF-8. end: "\\n", "\\r\\n", "\\r" (progress that
    the next line overwrites) or "" (unfinished when the task ended or output was lost). cut: bytes left out of an
    over-long line. headless: its beginning was dropped. stream: 1 out, 2 err, 0 the platform itself."""

    offset: int
    at_ns: int
    stream: int
    text: str
    end: str
    cut: int = 0
    headless: bool = False


@dataclass(slots=True)
class _Open:
    """A line not yet ended."""

    kept: bytearray = field(default_factory=bytearray)
    cut: int = 0
    # A CR came last: whether it ends a line alone or with an LF is known with the next byte.
    cr: bool = False
    headless: bool = False
    at_ns: int = 0

    @property
    def empty(self) -> bool:
        return not (self.kept or self.cut or self.cr)


class LineJoiner:
    """May begin in the middle of a log: a line whose beginning was not fed is given as `headless`."""

    def __init__(self, cap: int = LINE_CAP) -> None:
        self._cap = cap
        self._open: dict[int, _Open] = {}

    def feed(self, frame: Frame) -> Iterator[Line]:
        if frame.stream == PLATFORM:
            yield Line(frame.end, frame.at_ns, PLATFORM, frame.payload.decode("utf-8", "replace"), "\n")
            return
        state = self._open.get(frame.stream)
        if state is None:
            state = self._open[frame.stream] = _Open(headless=bool(frame.flags & CONTINUES))
        elif frame.flags & AFTER_LOSS:
            if not state.empty:
                yield self._end(state, frame.offset + FRAME_BYTES, frame.stream, "\r" if state.cr else "")
            state.headless = bool(frame.flags & CONTINUES)
        yield from self._split(state, frame)

    def finish(self, end: int) -> Iterator[Line]:
        """The unfinished lines of a log that ends at offset `end`. Their offsets lie beyond it, in stream order."""
        for stream in sorted(self._open):
            state = self._open[stream]
            if not state.empty:
                yield self._line(state, end + stream, stream, "\r" if state.cr else "")
        self._open.clear()

    def _split(self, state: _Open, frame: Frame) -> Iterator[Line]:
        payload, first = frame.payload, frame.offset + FRAME_BYTES
        at = 0
        if state.cr and payload:
            lf = payload[:1] == b"\n"
            at = 1 if lf else 0
            yield self._end(state, first + at, frame.stream, "\r\n" if lf else "\r")
        state.at_ns = frame.at_ns
        has_cr = b"\r" in payload
        while at < len(payload):
            stop, end = _terminator(payload, at, has_cr)
            if stop < 0:
                self._keep(state, payload[at:])
                return
            self._keep(state, payload[at:stop])
            at = stop + len(end)
            if end == b"\r" and at == len(payload):
                state.cr = True
                return
            yield self._end(state, first + at, frame.stream, end.decode())

    def _keep(self, state: _Open, piece: bytes) -> None:
        room = self._cap - len(state.kept)
        state.kept += piece[:room]
        state.cut += max(len(piece) - room, 0)

    def _end(self, state: _Open, offset: int, stream: int, end: str) -> Line:
        line = self._line(state, offset, stream, end)
        state.kept.clear()
        state.cut, state.cr, state.headless = 0, False, False
        return line

    def _line(self, state: _Open, offset: int, stream: int, end: str) -> Line:
        text = state.kept.decode("utf-8", "replace")
        if state.headless:
            text = "[the beginning of this line was dropped] " + text
        if state.cut:
            text += f" [{state.cut} more bytes of this line are not shown]"
        return Line(offset, state.at_ns, stream, text, end, state.cut, state.headless)


def _terminator(payload: bytes, at: int, has_cr: bool) -> tuple[int, bytes]:
    """Where the next line end is, and which; (-1, b"") where there is none."""
    lf = payload.find(b"\n", at)
    cr = payload.find(b"\r", at) if has_cr else -1
    if cr < 0 or 0 <= lf < cr:
        return (lf, b"\n") if lf >= 0 else (-1, b"")
    return (cr, b"\r\n") if payload[cr + 1 : cr + 2] == b"\n" else (cr, b"\r")
