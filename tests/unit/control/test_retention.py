"""Which ended groups go: the oldest, a few at a time, never one that has just ended."""

from hypothesis import given
from hypothesis import strategies as st

from mesh.core.control.retention import Retention, overdue
from mesh.core.state.keys import ended_key
from schemas.limits import PRUNED_AT_ONCE, RETENTION_LEAST_MS

DAY_MS = 86_400_000
NOW_MS = 1_764_000_000_000
AGES = st.lists(st.integers(0, 60 * DAY_MS), max_size=60)
BOUND = st.none() | st.integers(0, 50)


def ended(ages):
    return [ended_key(NOW_MS - age, f"tg-{place:020d}") for place, age in enumerate(sorted(ages, reverse=True))]


@given(AGES, BOUND, BOUND)
def test_what_goes_is_old_enough_and_too_much_and_the_oldest_first(ages, keep_days, keep_groups):
    retention = Retention(None if keep_days is None else keep_days * DAY_MS, keep_groups)
    keys = ended(ages)
    found = overdue(keys, len(keys), NOW_MS, retention)
    oldest = sorted(ages, reverse=True)
    assert found == [f"tg-{place:020d}" for place in range(len(found))], "not a beginning of the oldest"
    assert len(found) <= PRUNED_AT_ONCE
    for place in range(len(found)):
        too_old = keep_days is not None and oldest[place] > keep_days * DAY_MS
        too_many = keep_groups is not None and place < len(keys) - keep_groups
        assert oldest[place] >= RETENTION_LEAST_MS and (too_old or too_many)
    if keep_days is None and keep_groups is None:
        assert found == []


def test_repeated_passes_reach_the_bounds_and_stop():
    keys = ended([place * DAY_MS + RETENTION_LEAST_MS for place in range(100)])
    retention = Retention(40 * DAY_MS, 70)
    passes = 0
    while found := overdue(keys, len(keys), NOW_MS, retention):
        keys = [key for key in keys if key.partition("/")[2] not in set(found)]
        passes += 1
    # 41 of at most 40 days and an hour: the one of exactly that age is older than 40 days.
    assert (len(keys), passes) == (40, 3)


def test_a_number_is_kept_also_where_only_the_oldest_are_at_hand():
    keys = ended([10 * DAY_MS] * 30)
    assert len(overdue(keys[:5], 30, NOW_MS, Retention(None, 27))) == 3
