"""The points of one tag in one file, 20 bytes each, and which of them a later writer has superseded."""

from array import array
from dataclasses import dataclass
from itertools import compress
from math import isfinite
from struct import Struct

from schemas.rules.tfevents.pyramid import Pyramid

_float32 = Struct("<f")


@dataclass(frozen=True, slots=True)
class Cut:
    """A later writer began at `step`, at the time `wall`: what was at or after that step before then is superseded."""

    step: int
    wall: float

    def covers(self, other: "Cut") -> bool:
        return self.step <= other.step and self.wall >= other.wall


class Series:
    """Points in record order. The arrays are changed in place only, because the scan holds their append methods;
    `values` is replaced once, when a number comes that a float32 does not hold (`widen`)."""

    __slots__ = ("_counted", "_cuts", "_nonfinite", "_pyramid", "_settled", "steps", "superseded", "values", "walls")

    def __init__(self) -> None:
        self.steps = array("q")
        self.walls = array("d")
        self.values: array[float] = array("f")
        self.superseded = 0
        self._cuts: list[Cut] = []
        # Points before these positions have been held against the cuts, and looked at for NaN.
        self._settled = self._counted = self._nonfinite = 0
        self._pyramid: Pyramid | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, wall: float, value: float) -> None:
        self.steps.append(step)
        self.walls.append(wall)
        self.values.append(value)

    def needs_widening(self, value: float) -> bool:
        if self.values.typecode == "d" or not isfinite(value):
            return False
        try:
            return bool(_float32.unpack(_float32.pack(value))[0] != value)
        except OverflowError:
            return True

    def widen(self) -> None:
        self.values = array("d", self.values)

    def cut(self, cut: Cut) -> None:
        if any(other.covers(cut) for other in self._cuts):
            return
        self._cuts = [other for other in self._cuts if not cut.covers(other)] + [cut]
        self._settled = 0

    def drop_from(self, step: int) -> None:
        """The writer itself said that it begins again at this step."""
        self._keep([at < step for at in self.steps], 0)

    def settle(self) -> None:
        """Holds new points against the cuts; a cut made later is held against all of them."""
        start, count = self._settled, len(self.steps)
        if self._cuts and start < count:
            kept = [True] * (count - start)
            for cut in self._cuts:
                for at in range(start, count):
                    if self.steps[at] >= cut.step and self.walls[at] < cut.wall:
                        kept[at - start] = False
            self._keep(kept, start)
        self._settled = len(self.steps)

    def _keep(self, kept: list[bool], start: int) -> None:
        dropped = len(kept) - sum(kept)
        if not dropped:
            return
        self.steps[start:] = array("q", compress(self.steps[start:], kept))
        self.walls[start:] = array("d", compress(self.walls[start:], kept))
        self.values[start:] = array(self.values.typecode, compress(self.values[start:], kept))
        self.superseded += dropped
        self._settled = self._counted = self._nonfinite = 0
        self._pyramid = None

    @property
    def nonfinite(self) -> int:
        """NaN and infinities among the points; each is looked at once."""
        fresh = self.values[self._counted :]
        self._nonfinite += len(fresh) - sum(map(isfinite, fresh))
        self._counted = len(self.values)
        return self._nonfinite

    @property
    def pyramid(self) -> Pyramid:
        """Up to date with the points; each point is folded in once."""
        if self._pyramid is None:
            self._pyramid = Pyramid()
        self._pyramid.take_in(self.steps, self.values)
        return self._pyramid

    @property
    def last_nonfinite_at(self) -> int | None:
        if not self.nonfinite:
            return None
        return next(at for at in range(len(self.values) - 1, -1, -1) if not isfinite(self.values[at]))

    def step_range(self) -> tuple[int, int]:
        """Lowest and highest step; only where there are points."""
        return (self.steps[0], self.steps[-1]) if self.pyramid.ordered else (min(self.steps), max(self.steps))
