"""What a file can do to a reader: each fault is told apart, counted, and costs no more than its own record."""

import struct
import tracemalloc

import pytest

from schemas.rules.tfevents.frames import MAX_RECORD_BYTES
from schemas.rules.tfevents.run import Run
from schemas.rules.tfevents.scan import MOST_TAGS
from tests.unit.tfevents.event_bytes import (
    event,
    field,
    frame,
    masked,
    number,
    pairs,
    run_of,
    scalar,
    scan_of,
    simple,
    summary,
    varint,
    version,
)
from tests.unit.tfevents.samples import damaged


def lengths(run: Run) -> dict[str, int]:
    return {tag: len(run.curve(tag)) for tag in run.tags()}


def read(name: str):
    run = Run()
    scan = scan_of(damaged(name), name, run)
    return scan, lengths(run)


def test_good_file():
    scan, found = read("small")
    assert found == {"loss/train": 100, "lr": 100, "grad_norm": 100}
    assert (scan.offset, scan.bad_crc, scan.bad_proto, scan.unreadable) == (13_534, 0, 0, None)


@pytest.mark.attack(10)
def test_flipped_payload_costs_its_record():
    scan, found = read("flip_payload")
    assert found == {"loss/train": 100, "lr": 100, "grad_norm": 99}
    assert (scan.bad_crc, scan.unreadable, scan.offset) == (1, None, 13_534)


@pytest.mark.attack(10)
def test_flipped_length_ends_the_file():
    scan, found = read("flip_len")
    assert found == {"loss/train": 50, "lr": 50, "grad_norm": 49}
    assert scan.unreadable is not None
    assert scan.unreadable.offset == scan.offset == 6737
    assert "checksum" in scan.unreadable.why


@pytest.mark.attack(10)
def test_huge_length_is_judged_before_it_is_allocated():
    tracemalloc.start()
    scan, found = read("hostile_2e40")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == {"loss/train": 50, "lr": 50, "grad_norm": 49}
    assert scan.unreadable is not None and str(2**40) in scan.unreadable.why
    assert peak < 4 * 2**20


@pytest.mark.attack(10)
@pytest.mark.parametrize("length", [MAX_RECORD_BYTES + 1, 2**60, 2**64 - 1])
def test_lengths_above_the_limit(length: int):
    head = struct.pack("<Q", length)
    scan = scan_of(version() + head + masked(head))
    assert scan.unreadable is not None and scan.unreadable.offset == len(version())
    assert scan.need < 64


def test_the_largest_record_is_waited_for():
    head = struct.pack("<Q", MAX_RECORD_BYTES)
    scan = scan_of(head + masked(head))
    assert (scan.unreadable, scan.need, scan.offset) == (None, MAX_RECORD_BYTES + 16, 0)


def test_torn_tail_waits():
    scan, found = read("cut_midrecord")
    assert found == {"loss/train": 100, "lr": 100, "grad_norm": 99}
    assert (scan.unreadable, scan.bad_crc) == (None, 0)
    assert 13_507 - scan.offset < scan.need


@pytest.mark.attack(10)
@pytest.mark.parametrize("kept", [0, 1, 7, 8, 11, 12, 13, 30])
def test_every_kind_of_tear_waits_and_goes_on(kept: int):
    whole = scalar("loss", 7, 0.5)
    run = Run()
    scan = scan_of(version() + whole[:kept], run=run)
    assert (run.tags(), scan.unreadable) == ([], None)
    scan.feed(whole)
    assert pairs(run.curve("loss")) == [(7, 0.5)]


def test_zeros_at_the_tail_are_no_records():
    scan = scan_of(version() + scalar("loss", 1, 0.5) + bytes(4096))
    assert scan.unreadable is not None and scan.unreadable.offset == scan.offset
    assert scan.records == 2


def test_zeros_that_fill_up_later_are_read():
    """A share may show the new size of a file before its bytes."""
    run = Run()
    scan = scan_of(version() + bytes(64), run=run)
    assert scan.unreadable is not None
    scan.feed(scalar("loss", 1, 0.5))
    assert scan.unreadable is None
    assert pairs(run.curve("loss")) == [(1, 0.5)]


@pytest.mark.parametrize("name", ["empty", "version_only"])
def test_nothing_logged(name: str):
    scan, found = read(name)
    assert (found, scan.unreadable, scan.offset) == ({}, None, len(damaged(name)))


def test_foreign_bytes_are_unreadable_from_the_start():
    scan = scan_of(b"\x89PNG\r\n\x1a\n" + bytes(range(200)))
    assert scan.unreadable is not None and scan.unreadable.offset == 0


NO_EVENTS = {
    "number of eleven bytes": b"\x10" + b"\xff" * 10 + b"\x01",
    "number cut off": b"\x10\xff\xff",
    "field longer than the record": b"\x2a\xff\x01\x00",
    "field number 0": b"\x02\x00",
    "group": b"\x0b\x0c",
    "wire type 7": b"\x0f\x01",
    "time cut off": b"\x09\x00\x00",
    "value longer than its summary": field(5, b"\x0a\x7f\x00"),
    "tag longer than its value": field(5, field(1, b"\x0a\x7fx")),
    "endless fields": b"\x18\x00" * 300_000,
    "endless values": field(5, b"\x0a\x00" * 300_000),
    "endless parts of a value": field(5, field(1, b"\x0a\x00" * 2_000)),
    "endless summaries": field(5, b"") * 100,
}


@pytest.mark.parametrize("payload", NO_EVENTS.values(), ids=NO_EVENTS)
def test_payloads_that_are_no_events_are_counted(payload: bytes):
    run = Run()
    scan = scan_of(scalar("loss", 1, 1.0) + frame(payload) + scalar("loss", 2, 2.0), run=run)
    assert (scan.bad_proto, scan.bad_crc, scan.unreadable) == (1, 0, None)
    assert pairs(run.curve("loss")) == [(1, 1.0), (2, 2.0)]


def test_a_fault_behind_a_good_value_takes_the_record():
    run = Run()
    scan = scan_of(frame(event(summary(simple("loss", 1.0), b"\x0a\x7f"), 1)), run=run)
    assert (scan.bad_proto, run.tags()) == (1, [])


@pytest.mark.attack(10)
def test_deep_nesting_is_skipped_by_its_length():
    nested = b""
    for _ in range(500):
        nested = field(4, nested)
    run = Run()
    scan = scan_of(frame(event(nested)) + frame(event(summary(field(1, field(9, nested) + simple("loss", 1.0))), 1)))
    assert scan.bad_proto == 0
    assert run.tags() == []


def test_unknown_fields_are_passed_over():
    body = number(99, 5) + field(5, number(9, 1) + simple("loss", 0.5) + field(2, b"x")) + field(1000, b"later")
    run = run_of(_1=frame(event(body, 4)))
    assert pairs(run.curve("loss")) == [(4, 0.5)]


def test_fields_in_any_order():
    value = field(1, b"\x15" + struct.pack("<f", 0.5) + field(1, b"loss"))
    payload = field(5, value) + number(2, 9) + b"\x09" + struct.pack("<d", 3.0)
    points = list(run_of(_1=frame(payload)).curve("loss").points())
    assert [(point.step, point.wall, point.value) for point in points] == [(9, 3.0, 0.5)]


@pytest.mark.parametrize("step", [-1, -(2**63), 2**63 - 1, 2**31, 127, 128, 16_383, 16_384, 2**21, 2**28 - 1, 2**28, 0])
def test_every_step(step: int):
    """Twice: parsed, then recognised by its shape."""
    run = run_of(_1=b"".join(scalar("loss", step, value) for value in (0.5, 0.25, 0.125)))
    assert pairs(run.curve("loss")) == [(step, 0.5), (step, 0.25), (step, 0.125)]


def test_steps_written_longer_than_needed():
    payload = b"\x09" + struct.pack("<d", 1.0) + b"\x10\x85\x80\x00" + summary(simple("loss", 0.5))
    run = run_of(_1=scalar("loss", 1, 1.0) + frame(payload) * 2)
    assert pairs(run.curve("loss")) == [(1, 1.0), (5, 0.5), (5, 0.5)]


@pytest.mark.attack(10)
def test_many_tags_are_bounded_and_said():
    values = [simple(f"grad/{at}", 1.0) for at in range(100_000)]
    run = Run()
    scan = scan_of(frame(event(summary(*values), 1)), run=run)
    assert len(run.tags()) == MOST_TAGS
    assert scan.refused == 100_000 - MOST_TAGS
    scan.feed(scalar("grad/0", 2, 3.0) + scalar("late", 2, 3.0))
    assert pairs(run.curve("grad/0")) == [(1, 1.0), (2, 3.0)]
    assert scan.refused == 100_001 - MOST_TAGS


def test_long_tags_are_refused():
    run = Run()
    scan = scan_of(scalar("x" * 1025, 1, 1.0) + scalar("x" * 1024, 1, 1.0), run=run)
    assert (run.tags(), scan.refused, scan.bad_proto) == (["x" * 1024], 1, 0)


@pytest.mark.parametrize("tag", ["loss/[train]", "loss[step=5", "acc[/]", "a/b/c", "损失", "x" * 300, "", "loss\nnl"])
def test_tags_are_taken_literally(tag: str):
    run = run_of(_1=scalar(tag, 1, 0.5) + scalar(tag, 2, 0.25))
    assert run.tags() == [tag]
    assert pairs(run.curve(tag)) == [(1, 0.5), (2, 0.25)]


def test_case_matters():
    run = run_of(_1=scalar("Loss", 1, 1.0) + scalar("loss", 1, 2.0))
    assert [pairs(run.curve(tag)) for tag in ("Loss", "loss")] == [[(1, 1.0)], [(1, 2.0)]]


def test_tag_bytes_that_are_no_text_stay_apart():
    run = run_of(_1=scalar(b"\xff", 1, 1.0) + scalar(b"\xfe", 1, 2.0))
    assert run.tags() == ["\\xff", "\\xfe"]


def test_a_nan_between_numbers():
    """The record as a trainer wrote it, byte for byte."""
    raw = bytes.fromhex("1a00000000000000129bd82d090000006fb813da4110072a0d0a0b0a046c6f7373150000c07f44f8d105")
    run = Run()
    scan = scan_of(scalar("loss", 6, 0.5) + raw + scalar("loss", 8, 0.4), run=run)
    curve = run.curve("loss")
    assert scan.bad_crc == 0
    assert [point.step for point in curve.points()] == [6, 7, 8]
    assert curve.nonfinite == 1 and curve.last_nonfinite and curve.last_nonfinite.step == 7


def test_other_kinds_of_values_are_no_curves():
    image = field(1, field(1, b"image") + field(4, b"\x00" * 50_000))
    histogram = field(1, field(1, b"histogram") + field(5, b"\x00" * 100))
    run = Run()
    scan = scan_of(frame(event(summary(image, histogram, simple("loss", 1.0)), 1)), run=run)
    assert (run.tags(), scan.bad_proto, scan.refused) == (["loss"], 0, 0)


def test_the_last_kind_of_a_value_counts():
    both = field(1, field(1, b"loss") + b"\x15" + struct.pack("<f", 1.0) + field(4, b"image"))
    assert run_of(_1=frame(event(summary(both), 1))).tags() == []


def test_short_payloads():
    scan = scan_of(b"".join(frame(varint(1 << 3)[:size]) for size in (0, 1)) + scalar("loss", 1, 1.0))
    assert (scan.records, scan.bad_proto) == (3, 1)
