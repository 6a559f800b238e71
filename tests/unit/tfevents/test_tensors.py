import math
import struct

import pytest

from schemas.rules.tfevents.run import Run
from tests.unit.tfevents.event_bytes import (
    event,
    field,
    frame,
    number,
    pairs,
    run_of,
    scan_of,
    summary,
    tensor,
    varint,
)
from tests.unit.tfevents.samples import damaged

SHAPE_0 = field(2, b"")


def shape(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, number(1, size)) for size in sizes))


def tensor_event(proto: bytes, plugin: bytes | None = b"scalars", tag: str = "t", step: int = 1) -> bytes:
    return frame(event(summary(tensor(tag, proto, plugin)), step))


def read(proto: bytes, plugin: bytes | None = b"scalars") -> list[float]:
    run = run_of(_1=tensor_event(proto, plugin))
    return [point.value for point in run.curve("t").points()] if run.tags() else []


def test_every_encoding_of_the_sample():
    run = Run()
    scan_of(damaged("tensor_encodings"), run=run)
    found = {tag: pairs(run.curve(tag)) for tag in run.tags()}
    assert found.pop("double/precise") == [(7, 0.1)]
    assert found.pop("simple/precise") == [(7, 0.10000000149011612)]
    assert len(found) == 12
    for tag, points in found.items():
        assert points == [(7, 2.0 if tag.startswith("int") else 1.5)], tag


FIELDS = {
    "float": (1, b"\x2d" + struct.pack("<f", 1.5), 1.5),
    "float packed": (1, field(5, struct.pack("<f", 1.5)), 1.5),
    "double": (2, b"\x31" + struct.pack("<d", 0.1), 0.1),
    "double packed": (2, field(6, struct.pack("<d", 0.1)), 0.1),
    "int32": (3, number(7, -3), -3.0),
    "int32 packed": (3, field(7, varint(-3)), -3.0),
    "uint8": (4, field(7, varint(255)), 255.0),
    "int64": (9, field(10, varint(2**40)), 2.0**40),
    "int64 negative": (9, number(10, -(2**40)), -(2.0**40)),
    "bool": (10, field(11, b"\x01"), 1.0),
    "half": (19, field(13, varint(15872)), 1.5),
    "half subnormal": (19, number(13, 1), 2.0**-24),
    "bfloat16": (14, field(13, varint(16320)), 1.5),
    "uint32": (22, field(16, varint(2**32 - 1)), 2.0**32 - 1),
    "uint64": (23, field(17, varint(2**64 - 1)), 2.0**64),
}


@pytest.mark.parametrize(("dtype", "body", "value"), FIELDS.values(), ids=FIELDS)
def test_value_fields(dtype: int, body: bytes, value: float):
    assert read(number(1, dtype) + SHAPE_0 + body) == [value]


CONTENTS = {
    "float": (1, "<f", 1.5),
    "double": (2, "<d", 0.1),
    "int32": (3, "<i", -3),
    "uint8": (4, "<B", 200),
    "int16": (5, "<h", -300),
    "int8": (6, "<b", -3),
    "int64": (9, "<q", -(2**40)),
    "bool": (10, "<?", True),
    "half": (19, "<e", -1.5),
    "bfloat16": (14, "<H", 0x3FC0),
    "uint16": (17, "<H", 65535),
    "uint32": (22, "<I", 2**32 - 1),
    "uint64": (23, "<Q", 2**63),
}


@pytest.mark.parametrize(("dtype", "kind", "value"), CONTENTS.values(), ids=CONTENTS)
def test_raw_content(dtype: int, kind: str, value: float):
    want = 1.5 if dtype == 14 else float(value)
    assert read(number(1, dtype) + SHAPE_0 + field(4, struct.pack(kind, value))) == [want]


def test_special_halves():
    assert read(number(1, 19) + field(13, varint(0x7C00))) == [math.inf]
    assert math.isnan(read(number(1, 14) + field(13, varint(0x7FC0)))[0])


@pytest.mark.parametrize("dimensions", [b"", SHAPE_0, shape(1), shape(1, 1)])
def test_one_element_of_any_rank(dimensions: bytes):
    assert read(number(1, 1) + dimensions + field(5, struct.pack("<f", 1.5))) == [1.5]


NOT_SCALAR = {
    "two elements": number(1, 1) + shape(2) + field(5, struct.pack("<ff", 1, 2)),
    "two elements without a shape": number(1, 1) + field(5, struct.pack("<ff", 1, 2)),
    "no element": number(1, 1) + shape(0),
    "unknown rank": number(1, 1) + field(2, number(3, 1)) + field(5, struct.pack("<f", 1)),
    "dimension without a size": number(1, 1) + field(2, field(2, b"")) + field(5, struct.pack("<f", 1)),
    "text": number(1, 7) + field(8, b"text"),
    "no kind": field(5, struct.pack("<f", 1)),
    "unknown kind": number(1, 99) + field(4, b"\x00\x00\x00\x00"),
    "content of another size": number(1, 1) + field(4, b"\x00\x00\x80"),
    "content of two": number(1, 1) + field(4, struct.pack("<ff", 1, 2)),
}


@pytest.mark.parametrize("proto", NOT_SCALAR.values(), ids=NOT_SCALAR)
def test_what_is_no_scalar(proto: bytes):
    assert read(proto) == []


def test_absent_value_is_zero():
    assert read(number(1, 1) + SHAPE_0) == [0.0]


def test_packed_numbers_that_do_not_fill_their_field():
    run = Run()
    scan = scan_of(tensor_event(number(1, 1) + field(5, b"\x00" * 5)), run=run)
    assert (scan.bad_proto, run.tags()) == (1, [])


FLOAT = number(1, 1) + SHAPE_0 + field(5, struct.pack("<f", 1.5))


@pytest.mark.parametrize("plugin", [b"hparams", b"text", b"custom_scalars", b"images", b"pr_curves"])
def test_tensors_of_other_plugins_are_no_curves(plugin: bytes):
    assert read(FLOAT, plugin) == []


def test_a_tensor_without_a_plugin_is_taken_by_its_kind():
    assert read(FLOAT, None) == [1.5]


def test_the_plugin_is_named_by_the_first_value_alone():
    text = tensor_event(FLOAT, b"text", "note", 1) + tensor_event(FLOAT, None, "note", 2)
    curve = tensor_event(FLOAT, b"scalars", "loss", 1) + tensor_event(FLOAT, None, "loss", 2)
    run = run_of(_1=text + curve)
    assert {tag: len(run.curve(tag)) for tag in run.tags()} == {"loss": 2}


def test_the_plugin_survives_a_resume_at_an_offset():
    first = tensor_event(FLOAT, b"text", "note", 1)
    later = tensor_event(FLOAT, None, "note", 2)
    place = scan_of(first).place()
    run = Run()
    scan = run.open("events.out.tfevents.1.h.1.0", place)
    assert scan.offset == len(first)
    scan.feed(later)
    assert run.tags() == []
    assert scan.offset == len(first + later)


def test_a_number_beyond_float32_widens_the_series_once():
    precise = number(1, 2) + SHAPE_0 + field(6, struct.pack("<d", 0.1))
    huge = number(1, 2) + SHAPE_0 + field(6, struct.pack("<d", 1e300))
    run = run_of(_1=b"".join(tensor_event(proto, step=at) for at, proto in enumerate((FLOAT, precise, huge, FLOAT))))
    assert pairs(run.curve("t")) == [(0, 1.5), (1, 0.1), (2, 1e300), (3, 1.5)]
