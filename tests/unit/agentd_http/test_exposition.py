"""The page is read by Prometheus' own parser as it was meant, whatever stands in it."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from agentd.core.exposition import Family, Spread, counter, exposition, gauge, gauges

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)


def parsed(*families):
    return {family.name: family for family in text_string_to_metric_families(exposition(families).decode())}


@given(TEXT, TEXT, NUMBERS)
def test_labels_and_values_come_back(about, label, value):
    found = parsed(Family("heteroflow_x", "gauge", about, [("", (("a", label), ("b", "")), value)]))
    (sample,) = found["heteroflow_x"].samples
    assert sample.labels == {"a": label, "b": ""}
    assert math.isclose(sample.value, value, rel_tol=1e-15) or sample.value == value


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_histogram_counts_each_once_and_grows(took):
    spread = Spread((0.1, 1.0, 10.0))
    for seconds in took:
        spread.add(seconds)
    found = parsed(Family("heteroflow_t_seconds", "histogram", "t", list(spread.samples((("route", "/x"),)))))
    samples = found["heteroflow_t_seconds"].samples
    buckets = {s.labels["le"]: s.value for s in samples if s.name.endswith("_bucket")}
    for bound, count in buckets.items():
        assert count == sum(1 for seconds in took if seconds <= float(bound))
    (count,) = (s.value for s in samples if s.name.endswith("_count"))
    (total,) = (s.value for s in samples if s.name.endswith("_sum"))
    assert count == len(took) and math.isclose(total, sum(took), abs_tol=1e-9)


def test_what_is_not_known_is_absent():
    page = exposition(
        [gauge("heteroflow_a", "a", None), gauge("heteroflow_b", "b", False), counter("heteroflow_c_total", "c", 3)]
    ).decode()
    assert "heteroflow_a" not in page
    assert "heteroflow_b 0\n" in page and "heteroflow_c_total 3\n" in page
    assert "# TYPE heteroflow_c_total counter" in page


def test_states_stand_in_order():
    page = exposition([gauges("heteroflow_g", "g", "status", {"b": 1, "a": 2})]).decode()
    assert page.index('status="a"') < page.index('status="b"')
