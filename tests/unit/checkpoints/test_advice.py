"""The room on the disk and the interval of saves: figures that were worked out by hand, and what holds for any."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from agentd.http.checkpoint_advice import advice
from schemas.rules.checkpoints.disk_forecast import disk_forecast
from schemas.rules.checkpoints.measures import Measures, measured
from schemas.rules.checkpoints.save_interval import Watched, best_interval_s, interval_advice
from schemas.rules.rough_figures import rough, rough_size, rough_time

GIB, HOUR_S, MIN_MS = 1 << 30, 3600.0, 60_000
NONE = Watched(0, 0.0)


def row(saved_min, size=40 * GIB, took_ms=20_000, attempt=1, complete=True, removed_ms=None):
    saved_ms = None if saved_min is None else saved_min * MIN_MS
    return {
        "bytes": size,
        "took_ms": took_ms,
        "saved_ms": saved_ms,
        "attempt": attempt,
        "complete": complete,
        "removed_ms": removed_ms,
    }


def test_medians_of_the_ledger():
    rows = [row(0, took_ms=18_000), row(30), row(60, took_ms=90_000), row(95, removed_ms=1), row(1, complete=False)]
    assert measured(rows) == Measures(40 * GIB, 20.0, 1800.0, 3)
    assert measured([]) == Measures(None, None, None, 0)


def test_between_two_attempts_lies_a_wait():
    assert measured([row(0), row(30), row(600, attempt=2), row(640, attempt=2)]).every_s == 35 * 60
    assert measured([row(0, attempt=0), row(30)]).every_s is None, "one that was there before"
    assert measured([row(0), row(None), row(30)]).every_s == 1800, "what a resume told of has no time"
    assert measured([row(30), row(30)]).every_s is None, "no rate from no time"


def test_one_file_tells_no_duration():
    assert measured([row(0, took_ms=0), row(30, took_ms=0)]).took_s is None
    assert measured([row(0, took_ms=None)]).took_s is None


MEASURES = Measures(40 * GIB, 20.0, 1800.0, 1)


def test_when_the_disk_is_full():
    """24 more of 40 GiB go into 960 GiB, one in half an hour."""
    found = disk_forecast(MEASURES, None, 960 * GIB)
    assert (found.full_in_s, found.fits) == (12 * HOUR_S, None)
    assert found.text == (
        "disk full in about 12 h at this rate: one in 30 min, 40 GiB each, 960 GiB free, "
        "nothing is removed without keep_last_n"
    )
    assert disk_forecast(MEASURES, None, 0).full_in_s == 0


def test_what_keep_last_n_keeps_fits_or_does_not():
    """One is there; two more, and the one that is written before the oldest goes: 120 GiB."""
    assert disk_forecast(MEASURES, 3, 120 * GIB).text == (
        "the last 3 fit on the disk: 40 GiB each, 120 GiB more at most, 120 GiB free"
    )
    found = disk_forecast(MEASURES, 3, 119 * GIB)
    assert (found.full_in_s, found.fits) == (None, False)
    assert found.text.startswith("the disk is too small for the last 3: ")
    backlog = Measures(40 * GIB, 20.0, 1800.0, 9)
    assert disk_forecast(backlog, 3, 40 * GIB).fits and not disk_forecast(backlog, 3, 39 * GIB).fits


def test_no_forecast_of_what_is_not_known():
    unmeasured = Measures(None, None, None, 0)
    for keep in (None, 3):
        for measures, free in ((unmeasured, 960 * GIB), (MEASURES, None), (unmeasured, None)):
            found = disk_forecast(measures, keep, free)
            assert (found.full_in_s, found.fits) == (None, None) and found.text.startswith("no disk forecast: ")
    once = disk_forecast(Measures(40 * GIB, None, None, 1), None, 960 * GIB)
    assert once.full_in_s is None and once.text.startswith("room for about 24 more, how often it saves is not known")


def test_by_the_restarts_of_the_group():
    """sqrt(2 * 20 s * 36,000 s) = 1,200 s."""
    found = interval_advice(MEASURES, Watched(3, 30 * HOUR_S), Watched(2, 1000 * HOUR_S), 4)
    assert (found.interval_s, found.mtbf_s, found.at_least) == (1200, 36_000, False)
    assert found.text == (
        "save about every 20 min (every 30 min as now is near it): a save takes 20 s, "
        "its 4 nodes fail 10 h apart (3 restarts in 30 h of its running)"
    )


def test_by_the_losses_of_nodes():
    """One in 40 node-hours, and the group has four nodes: each 10 h."""
    found = interval_advice(MEASURES, Watched(0, 5 * HOUR_S), Watched(3, 120 * HOUR_S), 4)
    assert (found.interval_s, found.mtbf_s, found.at_least) == (1200, 36_000, False)
    assert found.text.endswith("its 4 nodes fail 10 h apart (3 node losses in 5 days of node time)")


def test_without_a_failure_it_is_a_lower_bound():
    """Nothing in 30 h of four nodes: less than 10 h between two would have shown itself."""
    found = interval_advice(MEASURES, Watched(0, 20 * HOUR_S), Watched(0, 120 * HOUR_S), 4)
    assert (found.interval_s, found.mtbf_s, found.at_least) == (1200, 36_000, True)
    assert found.text == (
        "save at least 20 min apart (every 30 min as now is near it): a save takes 20 s, "
        "its 4 nodes fail at least 10 h apart (no node loss in 5 days of node time)"
    )
    own = interval_advice(MEASURES, Watched(0, 31 * HOUR_S), Watched(0, 120 * HOUR_S), 4)
    assert own.text.endswith("(no restart in 31 h of its running)")


def test_too_often_and_too_seldom():
    def said(every_s, failures=3):
        measures = Measures(1, 20.0, every_s, 1)
        return interval_advice(measures, Watched(failures, 30 * HOUR_S), NONE, 1).text

    assert "(every 60 s now, which is often)" in said(60.0)
    assert "(every 2 h now, which is seldom)" in said(2 * HOUR_S)
    assert "(every 2 h now)" in said(2 * HOUR_S, failures=0), "a lower bound calls nothing too seldom"
    assert "save about every 20 min: a save" in said(None)


def test_no_advice_without_its_figures():
    unmeasured = Measures(1, None, 60.0, 1)
    found = interval_advice(unmeasured, Watched(3, 30 * HOUR_S), NONE, 1)
    assert (found.interval_s, found.text) == (None, "no interval advice: how long a save takes was not measured")
    found = interval_advice(MEASURES, NONE, NONE, 1)
    assert (found.interval_s, found.mtbf_s) == (None, None) and "long enough to tell" in found.text


def test_a_lower_bound_below_the_cost_advises_nothing():
    """Nothing failed in 100 s: more than 33 s pass between two failures, and a save takes 20 s."""
    found = interval_advice(MEASURES, Watched(0, 100.0), NONE, 1)
    assert (found.interval_s, found.at_least) == (None, True) and found.text == (
        "no interval advice: nothing has run long enough to tell how often it fails, "
        "its node fails at least 33 s apart (no restart in 1.7 min of its running)"
    )
    so_often = interval_advice(MEASURES, Watched(3, 100.0), NONE, 1)
    assert so_often.interval_s == 100 / 3 and so_often.text == (
        "no interval is good: a save takes 20 s, its node fails 33 s apart (3 restarts in 1.7 min of its running); "
        "make it cheaper or find what fails"
    )


positive = st.floats(1e-3, 1e9)


@given(positive, positive, st.floats(1.0, 1e6))
def test_the_interval_grows_with_both(cost_s, mtbf_s, factor):
    found = best_interval_s(cost_s, mtbf_s)
    assert 0 < found <= mtbf_s
    assert best_interval_s(cost_s * factor, mtbf_s) >= found
    assert best_interval_s(cost_s, mtbf_s * factor) >= found


lasting = st.just(0.0) | st.floats(1e-3, 1e9)
watched = st.builds(Watched, st.integers(0, 10**6), lasting)
maybe = st.none() | st.integers(0, 1 << 63)
measures_of = st.builds(Measures, maybe, st.none() | lasting, st.none() | st.floats(1e-3, 1e9), st.integers(0, 200))


@given(measures_of, watched, watched, st.integers(1, 1024))
def test_any_figures_give_an_interval_or_say_why_not(measures, group, nodes, n_nodes):
    found = interval_advice(measures, group, nodes, n_nodes)
    assert found.text
    if found.interval_s is None:
        assert found.text.startswith("no interval advice: ")
    else:
        assert measures.took_s and found.mtbf_s is not None and 0 < found.interval_s <= found.mtbf_s < inf
        assert found.at_least == ("(no " in found.text)


@given(measures_of, st.none() | st.integers(1, 1000), maybe, st.integers(0, 1 << 62))
def test_any_disk_has_a_forecast_or_says_why_not(measures, keep, free_bytes, more):
    found = disk_forecast(measures, keep, free_bytes)
    known = bool(measures.bytes_each) and free_bytes is not None
    assert known or (found.full_in_s, found.fits) == (None, None)
    assert (found.fits is not None) == (known and keep is not None)
    assert found.full_in_s is None or (found.full_in_s >= 0 and keep is None)
    if free_bytes is not None:
        roomier = disk_forecast(measures, keep, free_bytes + more)
        assert (roomier.full_in_s or 0) >= (found.full_in_s or 0) and (roomier.fits or 0) >= (found.fits or 0)


@given(lasting, st.floats(1.0, 100.0))
def test_rough_figures_keep_their_order(value, factor):
    assert rough(value) <= rough(value * factor)
    assert "e+" not in rough_time(value) and "e+" not in rough_size(value)


def test_rough_figures():
    times = {0: "0 s", 0.04: "0.04 s", 99: "99 s", 100: "1.7 min", 5999: "100 min", 6000: "1.7 h", 172_800: "2 days"}
    assert {seconds: rough_time(seconds) for seconds in times} == times
    assert [rough_size(size) for size in (0, 1012, 1536, 41 * GIB + 7, 3 << 40)] == [
        "0 B", "1,000 B", "1.5 KiB", "41 GiB", "3 TiB",
    ]  # fmt: skip


def group(**over):
    body = {"n_nodes": 4, "keep_last_n": 3, "framework": "fsdp"}
    return {
        "checkpoint_path": "/data/run",
        "status": "running",
        "task_type": "training",
        "document": {"training": body | over.pop("training", {})},
        "restarts": 0,
        "saved": {"free_bytes": 960 * GIB},
        **over,
    }


LOST = {"joined_ms": 0, "lost_ms": int(40 * HOUR_S) * 1000, "losses": 3}


def test_as_the_api_shows_it():
    found = advice(group(), [row(0), row(30)], [LOST])
    assert found["disk"] | {"text": ""} == {
        "bytes_each": 40 * GIB, "every_s": 1800.0, "free_bytes": 960 * GIB, "full_in_s": None, "fits": True, "text": "",
    }  # fmt: skip
    # 40 h / 3 / 4 nodes = 12,000 s; sqrt(2 * 20 * 12,000) = 693 s.
    assert found["interval"] | {"text": ""} == {
        "interval_s": 690, "at_least": False, "cost_s": 20.0, "mtbf_s": 12_000, "text": "",
    }  # fmt: skip
    assert advice(group(status="completed"), [row(0)], [LOST])["disk"] is None
    assert advice(group(checkpoint_path=None), [], [LOST]) is None


def test_an_agent_that_tells_no_free_space_leaves_it_unknown():
    for saved in ({"saved": None}, {"saved": {}}):
        disk = advice(group(**saved), [row(0), row(30)], [])["disk"]
        assert disk["free_bytes"] is None and disk["text"] == (
            "no disk forecast: the free space of its directory is not known"
        )


def test_files_of_tensorflow_are_never_removed():
    disk = advice(group(training={"framework": "tensorflow"}), [row(0), row(30)], [])["disk"]
    assert (disk["full_in_s"], disk["fits"]) == (43_000, None), "12 h, in two digits"
