"""Whatever is in an event file, and however it arrives."""

import functools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.sparkline import sparkline
from schemas.rules.tfevents.curve import Curve
from schemas.rules.tfevents.run import Run
from schemas.rules.tfevents.scan import FileScan
from schemas.rules.tfevents.series import Series
from tests.unit.tfevents.event_bytes import (
    event,
    field,
    frame,
    number,
    scalar,
    simple,
    start,
    summary,
    tensor,
    varint,
    version,
)
from tests.unit.tfevents.samples import REAL, damaged, samples

TAGS = ("loss", "lr", "grad/norm", "损失", "x" * 200)
STEPS = st.one_of(st.integers(0, 50), st.integers(-(2**63), 2**63 - 1))
WALLS = st.floats(0, 1e10)
VALUES = st.floats(width=32)


def tensor_record(tag: str, step: int, wall: float, value: int) -> bytes:
    return frame(event(summary(tensor(tag, number(1, 9) + field(10, varint(value)))), step, wall))


RECORDS = st.one_of(
    st.builds(scalar, st.sampled_from(TAGS), STEPS, VALUES, WALLS),
    st.builds(scalar, st.sampled_from(TAGS[:2]), st.integers(0, 300), VALUES, WALLS),
    st.builds(tensor_record, st.just("count"), STEPS, WALLS, st.integers(-(2**63), 2**63 - 1)),
    st.builds(
        lambda step, wall, pairs: frame(event(summary(*(simple(*pair) for pair in pairs)), step, wall)),
        STEPS,
        WALLS,
        st.lists(st.tuples(st.sampled_from(TAGS), VALUES), max_size=4),
    ),
    st.builds(start, st.integers(0, 60), WALLS),
    st.builds(version, WALLS),
    st.builds(frame, st.binary(max_size=40)),
)
FILES = st.lists(RECORDS, max_size=12).map(b"".join)
# (which file, up to which byte)
CUTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1200)), max_size=12)


def whole_picture(run: Run) -> list[object]:
    """Everything there is to see, NaN made comparable."""
    picture: list[object] = []
    for tag in sorted(run.tags()):
        curve = run.curve(tag)
        points = [(point.step, point.wall, repr(point.value)) for point in curve.points()]
        picture.append((tag, points, curve.superseded, curve.nonfinite, repr(curve.first), repr(curve.last)))
        if ends := curve.step_range():
            picture.append(repr(curve.columns(*ends, 16)))
    for file in run.files():
        scan = file.scan
        counts = (scan.records, scan.bad_crc, scan.bad_proto, scan.refused, scan.offset)
        picture.append((file.name, counts, scan.unreadable))
    return picture


def feed_as_far_as_it_goes(scan: FileScan, data: bytes, end: int) -> None:
    while scan.feed(data[scan.offset : end]):
        pass


@settings(max_examples=100, deadline=None)
@given(st.lists(FILES, min_size=1, max_size=3), CUTS)
def test_in_pieces_it_is_as_at_once(files: list[bytes], cuts: list[tuple[int, int]]) -> None:
    names = [f"events.out.tfevents.{at}.h.1.0" for at in range(len(files))]
    at_once = Run()
    for name, content in zip(names, files, strict=True):
        at_once.open(name).feed(content)
    grown = Run()
    scans = [grown.open(name) for name in names]
    for at, end in cuts:
        feed_as_far_as_it_goes(scans[at % len(files)], files[at % len(files)], end)
        for tag in grown.tags():
            _ = grown.curve(tag).nonfinite, sparkline(grown.curve(tag), 8)
    for scan, content in zip(scans, files, strict=True):
        feed_as_far_as_it_goes(scan, content, len(content))
    assert whole_picture(grown) == whole_picture(at_once)


def all_points(run: Run) -> set[tuple[str, str]]:
    return {(tag, repr(point)) for tag in run.tags() for point in run.curve(tag).points()}


@functools.cache
def true_points(name: str) -> set[tuple[str, str]]:
    run = Run()
    run.open(name).feed(damaged(name))
    return all_points(run)


@pytest.mark.attack(10)
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["small", "multi_value", "tensor_encodings", "nan_inf"]), st.lists(st.integers(0), max_size=8))
def test_flipped_bits_never_raise_and_invent_nothing(name: str, flips: list[int]) -> None:
    good = damaged(name)
    broken = bytearray(good)
    for flip in flips:
        broken[flip // 8 % len(good)] ^= 1 << flip % 8
    run = Run()
    run.open(name).feed(bytes(broken))
    whole_picture(run)
    assert all_points(run) <= true_points(name)


@pytest.mark.attack(10)
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    run = Run()
    run.open("x").feed(data)
    whole_picture(run)


@pytest.mark.attack(10)
@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=6), st.binary(max_size=30))
def test_any_payload(payloads: list[bytes], tail: bytes) -> None:
    run = Run()
    scan = run.open("x")
    scan.feed(b"".join(map(frame, payloads)) + scalar("loss", 1, 0.5) + tail)
    assert scan.records >= len(payloads) + 1
    assert "loss" in run.tags()
    whole_picture(run)


@pytest.mark.attack(10)
def test_mutated_payloads_of_real_files() -> None:
    """Checksums made right again, so that the damage reaches the parser."""
    chance = random.Random(20261129)
    for name in REAL:
        data = (samples() / name).read_bytes()[:20_000]
        payloads, at = [], 0
        while at + 12 <= len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            payloads.append(bytearray(data[at + 12 : at + 12 + length]))
            at += 16 + length
        for _ in range(20):
            mutated = [bytearray(payload) for payload in payloads]
            for _ in range(30):
                target = chance.choice(mutated)
                if not target:
                    continue
                where = chance.randrange(len(target))
                if chance.random() < 0.5:
                    target[where] = chance.randrange(256)
                else:
                    del target[where : where + chance.randrange(1, 5)]
            run = Run()
            scan = run.open("x")
            scan.feed(b"".join(frame(bytes(payload)) for payload in mutated))
            assert (scan.records, scan.bad_crc) == (len(mutated), 0)
            whole_picture(run)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.one_of(st.integers(-60, 60), st.integers(-(2**40), 2**40)), VALUES), min_size=1, max_size=200
    ),
    st.integers(1, 40),
    st.integers(1, 7),
)
def test_columns_hold_every_point_once(points: list[tuple[int, float]], width: int, pieces: int) -> None:
    series = Series()
    for at, (step, value) in enumerate(points):
        series.add(step, 1.0, value)
        if at % pieces == 0:
            series.pyramid.take_in(series.steps, series.values)
    curve = Curve([series])
    low, high = min(step for step, _ in points), max(step for step, _ in points)
    finite = [value for value in series.values if value - value == 0]
    columns = [column for column in curve.columns(low, high, width) if column]
    assert sum(column.bad for column in columns) == len(points) - len(finite)
    drawn = [column for column in columns if column.low <= column.high]
    assert (min((item.low for item in drawn), default=None), max((item.high for item in drawn), default=None)) == (
        min(finite, default=None),
        max(finite, default=None),
    )
