import pytest

from schemas.errors import InvalidInput
from schemas.ids import (
    RANDOM_BYTES,
    group_id_refusal,
    make_group_id,
    make_request_id,
    node_id,
    node_id_refusal,
    request_age_refusal,
    segment,
    segment_refusal,
    stamped_ms,
)

HOUR = 3_600_000
NOW = 1_764_436_545_000
NOISE = bytes(range(RANDOM_BYTES))


@pytest.mark.parametrize("good", ["a", "A1", "job.v2", "k-01", "0755", "a" * 63, "x..y"])
def test_segments_accepted(good):
    assert segment_refusal(good) is None
    assert segment(good) == good


@pytest.mark.parametrize(
    "bad",
    [
        "",
        ".",
        "..",
        "...",
        "-x",
        "_x",
        ".hidden",
        "a/b",
        "a\\b",
        "a b",
        "a\n",
        "a\x00",
        "训练",
        "🚀",
        "x\u202ey",
        "a" * 64,
        "%2e%2e",
        None,
        7,
        b"a",
    ],
)
def test_segments_refused_with_a_reason(bad):
    assert segment_refusal(bad, "name")
    with pytest.raises(InvalidInput) as error:
        segment(bad, "name")
    assert error.value.problem.code == "invalid_id"
    assert error.value.problem.field == "name"
    assert error.value.problem.hint


@pytest.mark.parametrize(
    ("given", "normal"), [("GPU-07", "gpu-07"), ("n1", "n1"), ("Host.Example.COM", "host.example.com"), ("1", "1")]
)
def test_node_names_are_lowered(given, normal):
    assert node_id(given) == normal
    assert node_id_refusal(normal) is None


@pytest.mark.parametrize(
    "bad",
    ["", "-a", "a-", "a_b", "a..b", ".", "..", "a.", "a/b", "a b", "nœud", "K\u212a", "a" * 64, "a." * 127 + "aa"],
)
def test_node_names_refused(bad):
    with pytest.raises(InvalidInput):
        node_id(bad)


def test_an_upper_case_node_id_is_refused_where_ids_are_expected():
    assert "lower case" in str(node_id_refusal("GPU-07"))


def test_group_ids_sort_by_creation_and_carry_it():
    times = [0, 1, 31, 32, 33, 1023, 1024, NOW - 1, NOW, NOW + 1, (1 << 50) - 1]
    high, low = b"\xff" * RANDOM_BYTES, b"\x00" * RANDOM_BYTES
    ids = [make_group_id(at, high if at % 2 else low) for at in times]
    assert ids == sorted(ids)
    assert [stamped_ms(value) for value in ids] == times
    assert all(group_id_refusal(value) is None for value in ids)
    assert all(value == value.lower() and value.startswith("tg-") for value in ids)


def test_random_bytes_make_ids_of_one_moment_different():
    ids = {make_group_id(NOW, bytes([0] * 6 + [last])) for last in range(256)}
    assert len(ids) == 256


@pytest.mark.parametrize(
    "bad",
    ["tg-", "tg-01", "rq-01kb89t3f89j6ct3adhq", "tg-01kb89t3f89j6ct3adhI", "tg-01KB89T3F89J6CT3ADHQ", "../x", "", None],
)
def test_group_ids_refused(bad):
    assert group_id_refusal(bad)


@pytest.mark.parametrize(("at", "noise"), [(-1, NOISE), (1 << 50, NOISE), (NOW, b"short")])
def test_ids_are_not_made_from_nonsense(at, noise):
    with pytest.raises(ValueError, match="id"):
        make_group_id(at, noise)


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (NOW, None),
        (NOW - 24 * HOUR, None),
        (NOW - 24 * HOUR - 1, "24 h"),
        (NOW + 600_000, None),
        (NOW + 600_001, "future"),
    ],
)
def test_request_ids_age(made, word):
    refusal = request_age_refusal(make_request_id(made, NOISE), NOW)
    assert refusal is None if word is None else word in str(refusal)


def test_a_foreign_request_id_has_no_age():
    assert request_age_refusal("k-01", NOW) is None
    assert request_age_refusal(make_group_id(0, NOISE), NOW) is None
