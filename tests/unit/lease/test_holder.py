from mesh.core.lease.holder import MS, Holder

S = 1000 * MS


def granted(sent_ns, ttl_ms=9000):
    return {"granted": True, "sent_ns": sent_ns, "ttl_ms": ttl_ms, "reason": ""}


def holder():
    return Holder("n1", "u1", renew_ms=1000)


def test_renewals_are_paced_and_do_not_wait_for_answers():
    lease = holder()
    assert lease.renewal(5 * S) == {"node": "n1", "uid": "u1", "sent_ns": 5 * S}
    assert lease.renewal(5 * S + 999 * MS) is None
    assert lease.renewal(6 * S)["sent_ns"] == 6 * S


def test_the_deadline_counts_from_the_sending_not_from_the_answer():
    lease = holder()
    assert lease.answered(granted(10 * S), now_ns=14 * S) is None
    assert lease.until_ns == 19 * S
    assert lease.left_ms(14 * S) == 5000
    assert lease.left_ms(25 * S) == 0


def test_no_lease_stands_before_the_first_grant():
    assert holder().left_ms(1 * S) == 0


def test_answers_that_overtake_one_another_never_shorten_the_lease():
    lease = holder()
    assert lease.answered(granted(11 * S), 12 * S) is None
    assert "granted already" in lease.answered(granted(10 * S), 13 * S)
    assert "granted already" in lease.answered(granted(11 * S), 13 * S)
    assert lease.until_ns == 20 * S


def test_a_shorter_profile_does_not_shorten_what_was_granted():
    lease = holder()
    lease.answered(granted(10 * S, ttl_ms=40_000), 10 * S)
    assert lease.answered(granted(11 * S, ttl_ms=9000), 11 * S) is None
    assert lease.until_ns == 50 * S


def test_a_grant_after_its_own_deadline_is_worthless():
    lease = holder()
    assert "after its own deadline" in lease.answered(granted(10 * S), 19 * S)
    assert lease.until_ns == 0


def test_a_grant_from_before_the_reboot_is_refused():
    lease = holder()
    assert "earlier boot" in lease.answered(granted(500 * S), 3 * S)
    assert lease.until_ns == 0


def test_a_refusal_is_kept_and_leaves_the_lease_as_it_is():
    lease = holder()
    lease.answered(granted(10 * S), 10 * S)
    assert (
        lease.answered({"granted": False, "sent_ns": 11 * S, "ttl_ms": 0, "reason": "no_quorum"}, 11 * S) == "no_quorum"
    )
    assert (lease.refusal, lease.until_ns) == ("no_quorum", 19 * S)
    lease.answered(granted(12 * S), 12 * S)
    assert lease.refusal is None
