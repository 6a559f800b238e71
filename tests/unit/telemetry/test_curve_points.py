"""Few points that show the curve: nothing an operator looks for is thinned away."""

import math
import random

import pytest

from agentd.core.curve_points import tag_points, thinned
from schemas.rules.tfevents.curve import Curve
from schemas.rules.tfevents.run_tree import RunTree
from schemas.rules.tfevents.series import Series
from tests.unit.tfevents.event_bytes import scalar, version


def curve(values, first=0, wall=1000.0):
    series = Series()
    for at, value in enumerate(values):
        series.add(first + at, wall + at, value)
    return Curve([series])


def test_a_short_curve_is_given_as_it_is():
    points = thinned(curve([3.0, 2.0, math.nan, 1.0]), 400)
    assert [point.step for point in points] == [0, 1, 2, 3]
    assert math.isnan(points[2].value)


def test_a_long_curve_keeps_ends_spikes_and_the_newest_nan():
    values = [1.0 / (1 + at) for at in range(50_000)]
    spikes = {7_001: 90.0, 23_456: -40.0, 49_000: 77.0}
    for at, value in spikes.items():
        values[at] = value
    values[31_000] = math.nan
    points = thinned(curve(values), 400)
    assert len(points) <= 400
    found = [point.value for point in points]
    assert set(spikes.values()) <= set(found)
    assert (points[0].step, points[0].value) == (0, 1.0)
    assert (points[-1].step, points[-1].wall) == (49_999, 1000.0 + 49_999)
    assert [point.step for point in points if math.isnan(point.value)] == [31_000]


def test_steps_and_walls_do_not_go_back():
    noise = random.Random(7)
    points = thinned(curve([noise.random() for _ in range(9_999)]), 100)
    assert [point.step for point in points] == sorted(point.step for point in points)
    assert [point.wall for point in points] == sorted(point.wall for point in points)


def test_every_point_stands_within_its_range():
    noise = random.Random(3)
    values = [noise.gauss(0.0, 1.0) for _ in range(10_000)]
    for point in thinned(curve(values), 300):
        near = values[max(point.step - 200, 0) : point.step + 200]
        assert any(value == pytest.approx(point.value, rel=1e-6) for value in near)


def test_since_gives_only_what_came_later():
    long = curve([float(at) for at in range(30_000)])
    assert [point.step for point in thinned(long, 50, since=1000.0 + 29_995)] == [29_996, 29_997, 29_998, 29_999]
    assert thinned(long, 50, since=1e9) == []
    later = thinned(long, 50, since=1000.0 + 15_000)
    assert later[-1].step == 29_999 and all(point.wall > 16_000 for point in later) and len(later) <= 50


def tree_of(tags, steps=3):
    tree = RunTree()
    scan = tree.run("").open("events.out.tfevents.1700000000.h.1.0")
    scan.feed(version() + b"".join(scalar(tag, step, 0.5) for step in range(steps) for tag in tags))
    return tree


def test_tags_by_name():
    tree = tree_of(["loss", "lr"])
    assert set(tag_points(tree, 10)) == {"loss", "lr"}
    assert set(tag_points(tree, 10, ["lr", "absent"])) == {"lr"}


def test_very_many_tags_get_few_points_each():
    answer = tag_points(tree_of([f"t{at}" for at in range(5_000)], steps=30), 400)
    assert len(answer) == 5_000 and sum(map(len, answer.values())) <= 40_000


def test_numbers_that_json_lacks_are_texts():
    tree = RunTree()
    scan = tree.run("").open("events.out.tfevents.1700000000.h.1.0")
    scan.feed(version() + scalar("loss", 6, 0.5) + scalar("loss", 7, math.nan) + scalar("loss", 8, -math.inf))
    assert [value for _, _, value in tag_points(tree, 10)["loss"]] == [0.5, "NaN", "-Infinity"]
