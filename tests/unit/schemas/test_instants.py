import pytest

from schemas.instants import MS_MAX, iso_utc, parse_iso_utc


@pytest.mark.parametrize("at_ms", [0, 1, 999, 1_764_436_545_123, MS_MAX])
def test_times_there_and_back(at_ms):
    assert parse_iso_utc(iso_utc(at_ms)) == at_ms


def test_times_out_of_range_do_not_break_a_list():
    assert iso_utc(-5) == "1970-01-01T00:00:00.000Z"
    assert iso_utc(MS_MAX + 1).startswith("9999-12-31")


def test_offsets_count():
    assert (
        parse_iso_utc("2026-11-29T18:00:00+01:00")
        == parse_iso_utc("2026-11-29T17:00:00")
        == parse_iso_utc("2026-11-29T17:00:00Z")
    )
