"""Number by number beside TensorBoard's EventAccumulator and tbparse, on real files."""

import warnings
from collections import defaultdict
from math import isnan
from pathlib import Path

import pytest

from console.event_tree import read_tree
from schemas.rules.tfevents.curve import Curve
from tests.unit.tfevents.event_bytes import pairs
from tests.unit.tfevents.samples import REAL, expected, samples


def curves(path: Path) -> dict[str, Curve]:
    return {item.name: item.curve for item in read_tree(path).tree.curves()}


def told_apart(points: list[tuple[int, float]]) -> list[tuple[int, str]]:
    """NaN equals NaN here."""
    return [(step, "nan" if isnan(value) else repr(float(value))) for step, value in points]


def accumulated(path: Path) -> dict[str, list[tuple[int, float, float]]]:
    """`{tag: [(step, wall, value)]}`, plain numbers and tensors without dimensions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray

        reader = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        found = {
            tag: [(item.step, item.wall_time, item.value) for item in reader.Scalars(tag)]
            for tag in reader.Tags()["scalars"]
        }
        for tag in reader.Tags()["tensors"]:
            items = [(item, make_ndarray(item.tensor_proto)) for item in reader.Tensors(tag)]
            if items and all(value.ndim == 0 and value.dtype.kind in "fiu" for _, value in items):
                found[tag] = [(item.step, item.wall_time, float(value)) for item, value in items]
    return found


def parsed(path: Path) -> dict[str, list[tuple[int, float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tbparse import SummaryReader

        reader = SummaryReader(str(path))
        found = defaultdict(list)
        for frame in (reader.scalars, reader.tensors):
            for row in frame.to_dict("records"):
                if getattr(row["value"], "ndim", 0) == 0 and isinstance(float(row["value"]), float):
                    found[row["tag"]].append((int(row["step"]), float(row["value"])))
    return dict(found)


@pytest.mark.parametrize("name", REAL)
def test_equal_to_the_recorded_reading(name: str) -> None:
    ours, theirs = curves(samples() / name), expected()[name]["scalars"]
    assert set(ours) == set(theirs)
    for tag, want in theirs.items():
        curve = ours[tag]
        assert curve.first and curve.last
        assert (len(curve), curve.nonfinite, curve.superseded) == (want["n"], want["nonfinite"], 0)
        assert (curve.first.step, curve.first.value) == (want["first_step"], want["first_value"])
        assert (curve.last.step, curve.last.value) == (want["last_step"], want["last_value"])
        assert (curve.first.wall, curve.last.wall) == (want["first_wall"], want["last_wall"])


@pytest.mark.parametrize("name", REAL)
def test_every_point_equals_event_accumulator(name: str) -> None:
    ours = {
        tag: [(point.step, point.wall, point.value) for point in curve.points()]
        for tag, curve in curves(samples() / name).items()
    }
    assert ours == accumulated(samples() / name)


@pytest.mark.parametrize("name", REAL)
def test_every_point_equals_tbparse(name: str) -> None:
    # tbparse sorts by step; what was logged at one step keeps its order.
    ours = {tag: sorted(pairs(curve), key=lambda pair: pair[0]) for tag, curve in curves(samples() / name).items()}
    theirs = {tag: sorted(points, key=lambda pair: pair[0]) for tag, points in parsed(samples() / name).items()}
    assert ours == theirs


@pytest.mark.parametrize("name", ["small", "cut_midrecord", "multi_value", "nan_inf", "steps_back_plain"])
def test_made_files_equal_event_accumulator(name: str) -> None:
    path = samples() / "damaged" / f"events.out.tfevents.{name}"
    ours = {tag: told_apart(pairs(curve)) for tag, curve in curves(path).items()}
    theirs = {
        tag: told_apart([(step, value) for step, _, value in points]) for tag, points in accumulated(path).items()
    }
    assert ours == theirs


def test_restarts_differ_as_documented() -> None:
    """EventAccumulator keeps what a new file supersedes unless the writer said so; taking it away gives our curve."""
    path = samples() / "damaged" / "restart_dir"
    for tag, points in accumulated(path).items():
        begun_again = next(at for at in range(1, len(points)) if points[at][0] < points[at - 1][0])
        step, wall, _ = points[begun_again]
        kept = [point for point in points[:begun_again] if not (point[0] >= step and point[1] < wall)]
        curve = curves(path)[tag]
        assert [(point.step, point.wall, point.value) for point in curve.points()] == kept + points[begun_again:]
        assert (len(points), len(curve), curve.superseded) == (2000, 1600, 400)
