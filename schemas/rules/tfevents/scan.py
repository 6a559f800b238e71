"""One event file, scanned as its bytes arrive.

Nine of ten records hold one plain number of a tag seen before, and differ from the last record of that tag only in
time, step, number and checksum. Such a record is recognised by the bytes between step and number and never parsed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from struct import Struct
from typing import Protocol

from google_crc32c import value as crc32c

from schemas.rules.tfevents.frames import FRAME_BYTES, HEAD_BYTES, MASK_DELTA, Unreadable, record_length
from schemas.rules.tfevents.protobuf import BYTES, Malformed, fields, float32, varint
from schemas.rules.tfevents.records import SCALARS, Event, event_of, value_of
from schemas.rules.tfevents.series import Series
from schemas.rules.tfevents.tensors import scalar_of

_wall_of = Struct("<d").unpack_from
_tail_of = Struct("<fI").unpack_from
# Remembered shapes and headers; a file that has more of them is made to, and only loses speed.
_MOST_SHAPES = 40_000
_MOST_HEADERS = 4096
# Of one run; a script that puts the step into its tags shall not fill the memory of the host.
MOST_TAGS = 20_000
_SUMMARY_KEY = 5 << 3 | BYTES
_VALUE_KEY = 1 << 3 | BYTES

_Appends = tuple[Callable[[int], None], Callable[[float], None], Callable[[float], None]]


@dataclass(frozen=True, slots=True)
class ScanPlace:
    """What a scan needs to go on behind `offset` in a process that has not read what stands before it.

    plugins: what the first value of each tag said; later ones do not repeat it."""

    offset: int
    plugins: dict[str, str]


class FileScan:
    """owner: answers for a tag (`series_for`) and hears of session starts (`session_starts`)."""

    def __init__(self, owner: "ScanOwner", place: ScanPlace | None = None) -> None:
        self.offset = place.offset if place else 0
        """Where the next unread record begins."""
        self.need = HEAD_BYTES
        """Bytes from offset on without which the scan cannot go on."""
        self.unreadable: Unreadable | None = None
        self.records = self.bad_crc = self.bad_proto = self.refused = 0
        """refused: values that were left out because the run has too many tags, or a tag is too long."""
        self.first_wall: float | None = None
        self.plugins: dict[str, str] = dict(place.plugins) if place else {}
        self._owner = owner
        self._series: dict[str, Series] = {}
        self._lengths: dict[bytes, int] = {}
        self._shapes: dict[bytes, _Appends] = {}
        self._value_shapes: dict[bytes, Series] = {}

    def place(self) -> ScanPlace:
        return ScanPlace(self.offset, dict(self.plugins))

    def feed(self, data: bytes) -> int:
        """data: bytes of the file from `offset` on. Returns how many were used up; `offset` is moved behind them."""
        at, size = 0, len(data)
        lengths, shapes = self._lengths, self._shapes
        wall_of, tail_of, crc_of = _wall_of, _tail_of, crc32c
        plain = bad_crc = 0
        self.unreadable, self.need = None, HEAD_BYTES
        while at + 12 <= size:
            body = at + 12
            length = lengths.get(data[at:body])
            if length is None:
                length = self._length(data[at:body], at)
                if length is None:
                    break
            end = body + length
            if end + 4 > size:
                self.need = length + FRAME_BYTES
                break
            at = end + 4
            payload = data[body:end]
            # Of a payload shorter than four bytes the number is meaningless, and not used.
            value, stored = tail_of(data, end - 4)
            crc = crc_of(payload)
            if ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF != stored:
                bad_crc += 1
                continue
            if length > 15 and payload[0] == 9 and payload[9] == 16:
                step = payload[10]
                if step < 128:
                    appends = shapes.get(payload[11:-4])
                elif (second := payload[11]) < 128:
                    step += (second << 7) - 128
                    appends = shapes.get(payload[12:-4])
                elif (third := payload[12]) < 128:
                    step += (second << 7) + (third << 14) - 16_512
                    appends = shapes.get(payload[13:-4])
                elif (fourth := payload[13]) < 128:
                    step += (second << 7) + (third << 14) + (fourth << 21) - 2_113_664
                    appends = shapes.get(payload[14:-4])
                else:
                    appends = None
                if appends is not None:
                    appends[0](step)
                    appends[1](wall_of(payload, 1)[0])
                    appends[2](value)
                    plain += 1
                    continue
            self._record(payload)
        self.records += plain + bad_crc
        self.bad_crc += bad_crc
        self.offset += at
        return at

    def _length(self, head: bytes, at: int) -> int | None:
        length = record_length(head, self.offset + at)
        if isinstance(length, Unreadable):
            self.unreadable = length
            return None
        if len(self._lengths) >= _MOST_HEADERS:
            self._lengths.clear()
        self._lengths[head] = length
        return length

    def _record(self, payload: bytes) -> None:
        """A record of a shape not seen before, of several values, or without any."""
        self.records += 1
        try:
            event = event_of(payload)
            values = self._values(payload, event)
        except Malformed:
            self.bad_proto += 1
            return
        if self.first_wall is None:
            self.first_wall = event.wall if isfinite(event.wall) else 0.0
        if event.starts:
            self._owner.session_starts(event.step, event.wall)
        for found in values:
            self._keep(found, event)
        if len(values) == 1:
            self._remember(payload)

    def _keep(self, found: "_Found", event: Event) -> None:
        # Not `or`: a series whose points were all taken back is empty, and still the tag's.
        series = found.series if found.series is not None else self._series.get(found.tag)
        if series is None:
            series = self._owner.series_for(found.tag, event.step, event.wall)
            if series is None:
                self.refused += 1
                return
            self._series[found.tag] = series
        if found.plain_at is not None and len(self._value_shapes) < _MOST_SHAPES:
            self._value_shapes[found.plain_at] = series
        if found.wide and series.needs_widening(found.value):
            series.widen()
            self._shapes.clear()
        series.add(event.step, event.wall, found.value)

    def _values(self, payload: bytes, event: Event) -> "list[_Found]":
        """All scalars of the record, or Malformed and none of them."""
        values: list[_Found] = []
        known = self._value_shapes
        for start, end in event.summaries:
            for number, wire, a, b in fields(payload, start, end):
                if number != 1 or wire != BYTES:
                    continue
                series = known.get(payload[a : b - 4]) if b - a > 4 else None
                if series is not None:
                    values.append(_Found("", float32(payload, b - 4)[0], series))
                elif (found := self._parsed(payload, a, b)) is not None:
                    values.append(found)
        return values

    def _parsed(self, payload: bytes, a: int, b: int) -> "_Found | None":
        item = value_of(payload, a, b)
        if item.tag is None:
            self.refused += 1
            return None
        if item.plugin is not None and item.tag not in self.plugins and len(self.plugins) < MOST_TAGS:
            self.plugins[item.tag] = item.plugin
        if item.simple is not None:
            return _Found(item.tag, item.simple, plain_at=payload[a : b - 4] if item.plain else None)
        if item.tensor is None or self.plugins.get(item.tag, SCALARS) != SCALARS:
            return None
        number = scalar_of(payload, *item.tensor)
        return None if number is None else _Found(item.tag, number, wide=True)

    def _remember(self, payload: bytes) -> None:
        """If the record is nothing but time, step and this one plain number, the next of its kind is not parsed."""
        if len(payload) < 16 or payload[0] != 9 or payload[9] != 16 or len(self._shapes) >= _MOST_SHAPES:
            return
        end = len(payload)
        after_step = varint(payload, 10, end)[1]
        if after_step > 14 or payload[after_step] != _SUMMARY_KEY:
            return
        size, at = varint(payload, after_step + 1, end)
        if at + size != end or payload[at] != _VALUE_KEY:
            return
        size, at = varint(payload, at + 1, end)
        series = self._value_shapes.get(payload[at:-4]) if at + size == end else None
        if series is not None:
            shape = (series.steps.append, series.walls.append, series.values.append)
            self._shapes[payload[after_step:-4]] = shape


@dataclass(slots=True)
class _Found:
    """series: known already. plain_at: the bytes that announce a plain number of this tag. wide: no float32."""

    tag: str
    value: float
    series: Series | None = None
    plain_at: bytes | None = None
    wide: bool = False


class ScanOwner(Protocol):
    def series_for(self, tag: str, step: int, wall: float) -> Series | None:
        """Where the points of this tag go, whose first is at this step and time; None: no more tags are kept."""

    def session_starts(self, step: int, wall: float) -> None:
        """The writer of this file begins again at this step."""
