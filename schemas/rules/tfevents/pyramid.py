"""Lowest, highest and last value per bucket of steps, in levels of doubling width: any zoom costs its columns only.

Buckets are ranges of steps, not of points, so that gaps and restarts stay where they are. A point costs one bucket a
level. NaN and infinities are counted in their bucket and move no bound: a bound they moved would hide the curve.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from math import inf, isfinite
from typing import NamedTuple

# The finest level holds a bucket for every eight points at least; what is finer is read from the points themselves.
_POINTS_A_BUCKET = 8
_FEW_BUCKETS = 512


class Bucket(NamedTuple):
    """low > high: no finite value. last: the value at the highest step, which is last_step. bad: how many were not
    finite."""

    low: float
    high: float
    last: float
    last_step: int
    bad: int

    def joined(self, later: "Bucket") -> "Bucket":
        """later: what was written later, where both hold the same step."""
        newest = later if later.last_step >= self.last_step else self
        low, high = min(self.low, later.low), max(self.high, later.high)
        return Bucket(low, high, newest.last, newest.last_step, self.bad + later.bad)


def bucket_of(step: int, value: float) -> Bucket:
    return Bucket(value, value, value, step, 0) if isfinite(value) else Bucket(inf, -inf, value, step, 1)


class Level:
    __slots__ = ("bads", "highs", "keys", "last_steps", "lasts", "lows")

    def __init__(self) -> None:
        self.keys = array("q")
        self.lows = array("d")
        self.highs = array("d")
        self.lasts = array("d")
        self.last_steps = array("q")
        self.bads = array("Q")

    def bucket(self, at: int) -> Bucket:
        return Bucket(self.lows[at], self.highs[at], self.lasts[at], self.last_steps[at], self.bads[at])

    def put(self, at: int, key: int, bucket: Bucket) -> None:
        """In place of the bucket of this key, or before the one that stands there."""
        if at == len(self.keys) or self.keys[at] != key:
            for whole in (self.keys, self.last_steps, self.bads):
                whole.insert(at, 0)
            for bound in (self.lows, self.highs, self.lasts):
                bound.insert(at, 0.0)
        self.keys[at] = key
        self.lows[at], self.highs[at], self.lasts[at], self.last_steps[at], self.bads[at] = bucket

    def cut_at(self, at: int) -> None:
        for whole in (self.keys, self.last_steps, self.bads):
            del whole[at:]
        for bound in (self.lows, self.highs, self.lasts):
            del bound[at:]


class Pyramid:
    def __init__(self) -> None:
        self.taken = 0
        self.shift = 0
        """The finest buckets are `1 << shift` steps wide."""
        self.levels = [Level()]
        self.ordered = True
        """Steps have never gone back, so points can be found by bisection."""

    def take_in(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """The points that were appended since the last call."""
        while self.taken < len(steps):
            # In slices, so that the finest level is thinned while it grows.
            self._extend(steps, values, self.taken, min(len(steps), self.taken + 65_536))
            while len(self.levels[0].keys) > max(_FEW_BUCKETS, self.taken // _POINTS_A_BUCKET):
                self.levels.pop(0)
                self.shift += 1

    def _extend(self, steps: Sequence[int], values: Sequence[float], start: int, end: int) -> None:
        level, shift = self.levels[0], self.shift
        keys, lows, highs, bads = level.keys, level.lows, level.highs, level.bads
        lasts, last_steps = level.lasts, level.last_steps
        newest = keys[-1] if keys else None
        first = steps[start] >> shift if newest is None else newest
        before = steps[start - 1] if start else steps[start]
        for at in range(start, end):
            step, value = steps[at], values[at]
            if step < before:
                self.ordered = False
            before = step
            key = step >> shift
            finite = isfinite(value)
            if key == newest:
                if step >= last_steps[-1]:
                    lasts[-1], last_steps[-1] = value, step
                if not finite:
                    bads[-1] += 1
                    continue
                if value < lows[-1]:
                    lows[-1] = value
                if value > highs[-1]:
                    highs[-1] = value
            elif newest is None or key > newest:
                newest = key
                keys.append(key)
                lows.append(value if finite else inf)
                highs.append(value if finite else -inf)
                lasts.append(value)
                last_steps.append(step)
                bads.append(0 if finite else 1)
            else:
                self._put_back(key, bucket_of(step, value))
        self._refold_from(first)
        self.taken = end

    def _put_back(self, key: int, fresh: Bucket) -> None:
        """A point at an earlier step than the newest: its bucket, then that bucket's parents."""
        level = self.levels[0]
        at = bisect_left(level.keys, key)
        known = at < len(level.keys) and level.keys[at] == key
        level.put(at, key, level.bucket(at).joined(fresh) if known else fresh)
        for child, parent in zip(self.levels, self.levels[1:], strict=False):
            key >>= 1
            parent.put(bisect_left(parent.keys, key), key, _parent_of(child, bisect_left(child.keys, key << 1)))

    def _refold_from(self, key: int) -> None:
        """Every parent of finest buckets from `key` on, made again."""
        at = 0
        while len(self.levels[at].keys) > 2:
            if at + 1 == len(self.levels):
                self.levels.append(Level())
                key = self.levels[at].keys[0]
            child, parent = self.levels[at], self.levels[at + 1]
            key >>= 1
            parent.cut_at(bisect_left(parent.keys, key))
            position = bisect_left(child.keys, key << 1)
            while position < len(child.keys):
                parent.put(len(parent.keys), child.keys[position] >> 1, _parent_of(child, position))
                twin = position + 1 < len(child.keys) and child.keys[position + 1] >> 1 == child.keys[position] >> 1
                position += 2 if twin else 1
            at += 1


def _parent_of(child: Level, at: int) -> Bucket:
    """Of the bucket at this place, the first of its parent's, and of its twin if that is there."""
    bucket = child.bucket(at)
    if at + 1 < len(child.keys) and child.keys[at + 1] >> 1 == child.keys[at] >> 1:
        return bucket.joined(child.bucket(at + 1))
    return bucket
