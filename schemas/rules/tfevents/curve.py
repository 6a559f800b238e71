"""One tag of a run: its points over all files, summed up or drawn."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.rules.tfevents.pyramid import Bucket, bucket_of
from schemas.rules.tfevents.series import Series


@dataclass(frozen=True, slots=True)
class Point:
    step: int
    wall: float
    """Unix seconds by the writer's clock."""
    value: float


class Curve:
    """parts: one series a file, oldest file first. Cheap to make; nothing is copied."""

    __slots__ = ("_parts", "superseded")

    def __init__(self, parts: Sequence[Series]) -> None:
        self.superseded = sum(part.superseded for part in parts)
        self._parts = [part for part in parts if len(part)]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def first(self) -> Point | None:
        return _point(min(self._parts, key=lambda part: part.walls[0]), 0) if self._parts else None

    @property
    def last(self) -> Point | None:
        """The newest by its writer's clock: where two files are live, the one that is ahead."""
        # Of equal times the later file's counts.
        return _point(max(reversed(self._parts), key=lambda part: part.walls[-1]), -1) if self._parts else None

    @property
    def nonfinite(self) -> int:
        return sum(part.nonfinite for part in self._parts)

    @property
    def last_nonfinite(self) -> Point | None:
        """The newest NaN or infinity."""
        newest: Point | None = None
        for part in self._parts:
            at = part.last_nonfinite_at
            if at is not None and (newest is None or part.walls[at] >= newest.wall):
                newest = _point(part, at)
        return newest

    def points(self) -> Iterator[Point]:
        """File by file, in the order in which they were written."""
        for part in self._parts:
            for step, wall, value in zip(part.steps, part.walls, part.values, strict=True):
                yield Point(step, wall, value)

    def newer(self, wall: float, most: int) -> list[Point] | None:
        """What was written after that moment, file by file; None where that is more than `most` points."""
        found: list[Point] = []
        for part in self._parts:
            at = len(part)
            while at and part.walls[at - 1] > wall:
                at -= 1
                if len(found) + len(part) - at > most:
                    return None
            found += (_point(part, each) for each in range(at, len(part)))
        return found

    def wall_at(self, step: int) -> float:
        """When the newest point at or before this step was written; only where there are points."""
        for part in reversed(self._parts):
            if part.pyramid.ordered and part.steps[0] <= step:
                return part.walls[bisect_right(part.steps, step) - 1]
        return self._parts[0].walls[0]

    def step_range(self) -> tuple[int, int] | None:
        """Lowest and highest step."""
        if not self._parts:
            return None
        ends = [part.step_range() for part in self._parts]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def columns(self, low: int, high: int, width: int) -> list[Bucket | None]:
        """`width` equal ranges of the steps low..high, both included; None where there is no point.

        Where there are many points a range may begin early, by an eighth of its width at most."""
        columns: list[Bucket | None] = [None] * width
        span = high - low + 1
        for part in self._parts:
            for step, bucket in _buckets(part, low, high, span // (8 * width) if len(part) > 16 * width else 0):
                at = min(max(step - low, 0) * width // span, width - 1)
                before = columns[at]
                columns[at] = bucket if before is None else before.joined(bucket)
        return columns


def _point(part: Series, at: int) -> Point:
    return Point(part.steps[at], part.walls[at], part.values[at])


def _buckets(part: Series, low: int, high: int, widest: int) -> Iterator[tuple[int, Bucket]]:
    """`(first step, bucket)` of buckets not wider than that, or of the points themselves."""
    pyramid = part.pyramid
    finest = pyramid.shift
    if widest >> finest:
        depth = min(widest.bit_length() - 1 - finest, len(pyramid.levels) - 1)
        level, shift = pyramid.levels[depth], finest + depth
        at = bisect_left(level.keys, low >> shift)
        while at < len(level.keys) and level.keys[at] << shift <= high:
            yield level.keys[at] << shift, level.bucket(at)
            at += 1
        return
    steps, values = part.steps, part.values
    for at in range(bisect_left(steps, low) if pyramid.ordered else 0, len(steps)):
        step, value = steps[at], values[at]
        if step > high:
            if pyramid.ordered:
                return
        elif step >= low:
            yield step, bucket_of(step, value)
