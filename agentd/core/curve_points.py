"""A curve as few points: every one of a short curve; of a long one lowest, highest and last of equal ranges of steps,
so that no spike is lost."""

from collections.abc import Iterator, Sequence
from math import isfinite

from schemas.rules.tfevents.curve import Curve, Point
from schemas.rules.tfevents.pyramid import Bucket
from schemas.rules.tfevents.report import JsonNumber, json_number
from schemas.rules.tfevents.run_tree import RunTree

DEFAULT_POINTS = 400
MOST_POINTS = 20_000
# Of all tags together: some 2 MB of JSON.
_ANSWER_POINTS = 40_000
_POINTS_A_RANGE = 3


def thinned(curve: Curve, points: int, since: float | None = None) -> list[Point]:
    """About `points` of them at most. since: only what was written after that moment (Unix seconds).

    First, last and the newest NaN are always there, exactly; the others of a thinned curve stand within their range."""
    if since is not None and (newer := curve.newer(since, points)) is not None:
        return newer
    steps, last = curve.step_range(), curve.last
    if len(curve) <= points or steps is None or last is None:
        return list(curve.points())
    low, high = steps
    width = max((points - 3) // _POINTS_A_RANGE, 1)
    found = [point for point in [curve.first, curve.last_nonfinite] if point is not None]
    # Two live files can hold the same steps: what was written last is also said last.
    kept = {point.step for point in (*found, last)}
    columns = curve.columns(low, high, width)
    for at, bucket in enumerate(columns):
        if bucket is not None:
            ends = low + (high - low + 1) * at // width, low + (high - low + 1) * (at + 1) // width - 1
            found += (point for point in _range_points(curve, bucket, *ends) if point.step not in kept)
    found.sort(key=lambda point: point.step)
    return [point for point in [*found, last] if since is None or point.wall > since]


def _range_points(curve: Curve, bucket: Bucket, start: int, end: int) -> Iterator[Point]:
    """Where within the range lowest and highest were is not known: they come before its last point."""
    middle = start + (end - start) // 2
    places = (min(start, bucket.last_step), min(middle, bucket.last_step))
    for step, value in zip(places, (bucket.low, bucket.high), strict=True):
        if isfinite(value) and value != bucket.last:
            yield Point(step, curve.wall_at(step), value)
    yield Point(bucket.last_step, curve.wall_at(bucket.last_step), bucket.last)


def tag_points(
    tree: RunTree, points: int, tags: Sequence[str] = (), since: float | None = None
) -> dict[str, list[tuple[int, JsonNumber, JsonNumber]]]:
    """`{tag: [(step, wall, value)]}` of these tags, or of all; fewer points of each where there are very many tags."""
    wanted = [item for item in tree.curves() if not tags or item.name in tags]
    each = max(min(points, MOST_POINTS, _ANSWER_POINTS // max(len(wanted), 1)), 2)
    return {
        item.name: [
            (point.step, json_number(point.wall), json_number(point.value))
            for point in thinned(item.curve, each, since)
        ]
        for item in wanted
    }
