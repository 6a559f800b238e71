from array import array
from math import inf, nan

import pytest

from schemas.rules.tfevents.curve import Curve
from schemas.rules.tfevents.pyramid import Bucket, Pyramid, bucket_of
from schemas.rules.tfevents.series import Cut, Series


def series(points: list[tuple[int, float]]) -> Series:
    made = Series()
    for step, value in points:
        made.add(step, 1.0, value)
    return made


def joined(columns: list[Bucket | None]) -> Bucket:
    found = [column for column in columns if column]
    whole = found[0]
    for column in found[1:]:
        whole = whole.joined(column)
    return whole


def test_columns_of_few_points_are_the_points():
    curve = Curve([series([(0, 5.0), (10, 3.0), (20, 4.0), (30, 1.0)])])
    assert curve.columns(0, 39, 4) == [bucket_of(0, 5.0), bucket_of(10, 3.0), bucket_of(20, 4.0), bucket_of(30, 1.0)]


def test_gaps_stay_gaps():
    columns = Curve([series([(0, 1.0), (99, 2.0)])]).columns(0, 99, 10)
    assert [column is None for column in columns] == [False] + [True] * 8 + [False]


def test_no_spike_is_lost():
    points = [(step, 1.0) for step in range(100_000)]
    for at, spike in ((17, 9.0), (51_000, -9.0), (99_999, 7.0)):
        points[at] = (at, spike)
    columns = Curve([series(points)]).columns(0, 99_999, 50)
    assert columns[0] and columns[25] and columns[49]
    assert (columns[0].high, columns[25].low, columns[49].high) == (9.0, -9.0, 7.0)
    assert sum(1 for column in columns if column and (column.low, column.high) == (1.0, 1.0)) == 47


def test_nan_moves_no_bound_and_is_counted():
    columns = Curve([series([(0, 1.0), (1, nan), (2, 3.0), (3, inf), (4, nan), (5, nan)])]).columns(0, 5, 2)
    assert columns[0] and (columns[0].low, columns[0].high, columns[0].bad) == (1.0, 3.0, 1)
    assert columns[1] and columns[1].low > columns[1].high and columns[1].bad == 3


def test_zoom_reads_the_points_themselves():
    curve = Curve([series([(step * 10, float(step)) for step in range(100_000)])])
    assert curve.columns(500_000, 500_039, 4) == [bucket_of(500_000 + 10 * at, 50_000.0 + at) for at in range(4)]


def test_zoom_where_steps_go_back():
    curve = Curve([series([(step, float(step)) for step in (5, 6, 7, 5, 6, 7, 8)])])
    assert [column.last if column else None for column in curve.columns(5, 8, 4)] == [5.0, 6.0, 7.0, 8.0]
    assert curve.columns(6, 6, 1) == [bucket_of(6, 6.0)]


def test_it_stays_small():
    pyramid = Pyramid()
    steps = array("q", range(0, 600_000, 3))
    pyramid.take_in(steps, array("f", bytes(4 * len(steps))))
    assert sum(len(level.keys) for level in pyramid.levels) < len(steps) / 3
    assert len(pyramid.levels[-1].keys) <= 2


@pytest.mark.parametrize("steps", [range(10_000), range(10_000, 0, -1), range(-5_000, 5_000), [2**63 - 1, -(2**63), 0]])
def test_grown_in_pieces_it_is_the_same(steps: range):
    points = [(step, float(at % 97)) for at, step in enumerate(steps)]
    whole, grown = series(points), series([])
    for start in range(0, len(points), 777):
        for step, value in points[start : start + 777]:
            grown.add(step, 1.0, value)
        assert grown.pyramid.taken == len(grown)
    low, high = min(steps), max(steps)
    for width in (1, 7, 200):
        assert Curve([grown]).columns(low, high, width) == Curve([whole]).columns(low, high, width)


def test_points_taken_back_leave_no_trace():
    made = series([(step, float(step)) for step in range(1000)])
    assert joined(Curve([made]).columns(0, 999, 10)).high == 999.0
    made.cut(Cut(500, 2.0))
    made.settle()
    assert joined(Curve([made]).columns(0, 999, 10)).high == 499.0


def test_files_are_drawn_together():
    curve = Curve([series([(0, 1.0), (1, 9.0)]), series([(1, 5.0), (2, 2.0)])])
    assert curve.columns(0, 2, 3) == [bucket_of(0, 1.0), Bucket(5.0, 9.0, 5.0, 1, 0), bucket_of(2, 2.0)]
    assert curve.step_range() == (0, 2)


def test_the_last_of_a_bucket_is_at_its_highest_step():
    made = series([(step, 0.0) for step in range(4096)])
    assert made.pyramid.shift > 0
    newest = made.pyramid.levels[0].keys[-1] << made.pyramid.shift
    for step, value in ((4095, 1.0), (newest, 2.0)):
        made.add(step, 1.0, value)
    assert made.pyramid.levels[0].bucket(-1) == Bucket(0.0, 2.0, 1.0, 4095, 0)
