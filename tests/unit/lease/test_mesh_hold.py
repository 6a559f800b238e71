"""What a leader grants under a hold, and what it tells the log of it."""

import pytest

from mesh.core.lease.grantor import MS, Grantor
from schemas.limits import HOLD_STRETCH, PROFILES

S = 1000 * MS
FAST = PROFILES["fast"]


def row(hold=5, for_s=1800, left_s=None, **over):
    left_ms = int(for_s * 1000 * HOLD_STRETCH) if left_s is None else left_s * 1000
    return {"hold": hold, "for_ms": for_s * 1000, "left_ms": left_ms, "granting": True, "over_ms": None, **over}


def grantor(*rows, now_ns=0):
    made = Grantor(FAST, now_ns)
    made.observe("n1", {"uid": "u1", "state": "ready"}, now_ns)
    for item in rows:
        made.observe_hold(item, now_ns)
    return made


def extra_s(leases, now_ns):
    answer = leases.renew({"node": "n1", "uid": "u1", "sent_ns": now_ns}, now_ns, True)
    return (answer["ttl_ms"] - FAST.t_stop_ms) / 1000


def test_the_first_lease_has_all_that_was_asked_for_and_the_last_nothing():
    leases = grantor(row())
    assert extra_s(leases, 0) == pytest.approx(1800, abs=0.01)
    assert extra_s(leases, 900 * S) == pytest.approx((1854 - 900) / HOLD_STRETCH, abs=0.01)
    assert extra_s(leases, 1854 * S) == 0


def test_a_leader_that_takes_over_grants_no_more_than_the_log_says_is_left():
    assert extra_s(grantor(row(left_s=103), now_ns=7 * S), 7 * S) == pytest.approx(100, abs=0.01)


def test_a_long_hold_made_longer_near_its_end_has_all_that_was_asked_for():
    leases = grantor(row(for_s=86_400))
    now_ns = 88_900 * S
    leases.observe_hold(row(hold=9, for_s=1800, left_s=1854), now_ns)
    assert extra_s(leases, now_ns) == pytest.approx(1800, abs=0.01)


def test_a_shorter_second_one_takes_nothing_back():
    leases = grantor(row(), row(hold=9, for_s=60))
    assert extra_s(leases, 0) == pytest.approx(1800, abs=0.01)


def test_released_it_grants_nothing_longer_and_still_gives_nobody_up_before_its_end():
    leases = grantor(row(for_s=60))
    leases.observe_hold(row(for_s=60, granting=False), 1 * S)
    assert extra_s(leases, 1 * S) == 0
    assert leases.tick(61 * S, True) == []


def test_its_end_is_told_when_it_comes_and_again_until_the_log_has_it():
    leases = grantor(row(for_s=60))
    told = [(second, left) for second in range(70) if (left := leases.hold_left(second * S, True))]
    assert [second for second, left in told if left["left_ms"] == 0] == list(range(62, 70))
    assert {left["hold"] for _, left in told} == {5} and len(told) > 50
    leases.observe_hold(row(for_s=60, left_s=0, over_ms=1), 70 * S)
    assert leases.hold_left(71 * S, True) is None


def test_without_its_quorum_lease_a_leader_tells_nothing():
    assert grantor(row(for_s=60)).hold_left(30 * S, False) is None
