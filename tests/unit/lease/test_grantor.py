import pytest

from mesh.core.lease.grantor import MS, Expire, Grantor
from schemas.limits import PROFILES

S = 1000 * MS
FAST = PROFILES["fast"]
READY = {"uid": "u1", "state": "ready"}
LOST = {"uid": "u1", "state": "lost"}


def grantor(now_ns=0):
    made = Grantor(FAST, now_ns)
    made.observe("n1", READY, now_ns)
    return made


def renew(leases, now_ns, quorum=True, uid="u1", node="n1"):
    return leases.renew({"node": node, "uid": uid, "sent_ns": now_ns - 5}, now_ns, quorum)


def run(leases, start_s, end_s, quorum=True):
    """Ticks every 250 ms; what was decided, with its second."""
    found = []
    for step in range(int(start_s * 4), int(end_s * 4) + 1):
        found += [(step / 4, effect) for effect in leases.tick(step * S // 4, quorum)]
    return found


def test_a_grant_echoes_the_sending_and_gives_t_stop():
    assert renew(grantor(), 1 * S) == {"granted": True, "sent_ns": 1 * S - 5, "ttl_ms": FAST.t_stop_ms, "reason": ""}


@pytest.mark.parametrize(
    ("call", "reason"),
    [({"quorum": False}, "no_quorum"), ({"uid": "u2"}, "wrong_uid"), ({"node": "n9"}, "unknown_node")],
)
def test_refusals_say_why(call, reason):
    answer = renew(grantor(), 1 * S, **call)
    assert (answer["granted"], answer["ttl_ms"], answer["reason"]) == (False, 0, reason)


def test_a_silent_node_expires_at_t_lease_once():
    leases = grantor()
    run(leases, 0, 2)
    renew(leases, 2 * S)
    found = run(leases, 2.25, 40)
    assert found == [(17.0, Expire("n1", "u1", "no lease renewal for 15.0 s"))]


def test_a_renewing_node_never_expires():
    leases = grantor()
    for second in range(100):
        assert renew(leases, second * S)["granted"]
        assert run(leases, second, second + 0.75) == []


def test_nothing_is_granted_while_the_expiry_is_in_flight():
    leases = grantor()
    assert run(leases, 0, 15)
    assert renew(leases, 15 * S + 1)["reason"] == "expiring"
    leases.expiry_failed("n1", 16 * S)
    assert renew(leases, 16 * S + 1)["granted"]
    run(leases, 16.25, 20)
    assert leases.silence_ms(20 * S)["n1"] == 3999


def test_a_lost_node_gets_nothing_until_it_has_rejoined():
    leases = grantor()
    run(leases, 0, 15)
    leases.observe("n1", LOST, 15 * S)
    assert renew(leases, 15 * S + 1)["reason"] == "lost"
    leases.expiry_failed("n1", 15 * S + 2)
    assert renew(leases, 15 * S + 3)["reason"] == "lost"
    assert run(leases, 15.25, 60) == []
    leases.observe("n1", READY, 60 * S)
    assert renew(leases, 60 * S + 1)["granted"]
    assert [second for second, _ in run(leases, 60.25, 80)] == [75.25]


def test_rows_that_change_otherwise_do_not_restart_the_clock():
    leases = grantor()
    run(leases, 0, 10)
    leases.observe("n1", {**READY, "penalty": {"score": 1}}, 10 * S)
    assert [second for second, _ in run(leases, 10.25, 20)] == [15.0]


def test_a_host_that_took_the_name_over_has_a_clock_of_its_own():
    leases = grantor()
    run(leases, 0, 10)
    leases.observe("n1", {"uid": "u2", "state": "ready"}, 10 * S)
    assert renew(leases, 10 * S + 1)["reason"] == "wrong_uid"
    assert [effect.uid for _, effect in run(leases, 10.25, 25)] == ["u2"]


def test_a_removed_node_is_forgotten():
    leases = grantor()
    leases.observe("n1", None, 0)
    assert run(leases, 0, 30) == []


def test_the_clock_starts_at_the_election():
    leases = grantor(now_ns=100 * S)
    assert [second for second, _ in run(leases, 100, 120)] == [115.0]


def test_without_its_own_quorum_lease_a_leader_judges_nobody_and_starts_over_when_it_has_it_again():
    leases = grantor()
    run(leases, 0, 10)
    assert run(leases, 10.25, 40, quorum=False) == []
    assert [second for second, _ in run(leases, 40.25, 60)] == [55.25]


def test_a_leader_whose_loop_stood_still_starts_over():
    leases = grantor()
    run(leases, 0, 14)
    assert run(leases, 16, 30) == []
    assert [second for second, _ in run(leases, 30.25, 32)] == [31.0]


def test_a_renewal_that_comes_before_the_tick_of_a_woken_loop_does_not_hide_the_gap():
    leases = grantor()
    leases.observe("n2", {"uid": "u2", "state": "ready"}, 0)
    run(leases, 0, 14)
    assert renew(leases, 16 * S)["granted"]
    assert run(leases, 16, 30.75) == []
    assert [(second, effect.node) for second, effect in run(leases, 31, 32)] == [(31.0, "n1"), (31.0, "n2")]


@pytest.mark.attack(47)
@pytest.mark.parametrize("ahead_s", [-360, 0, 360])
def test_a_hosts_own_clock_makes_no_loss_early_or_late(ahead_s):
    """The host stamps with its clock, the leader only echoes the stamp and counts from its own receipts."""
    leases = grantor()
    for second in range(600):
        sent_ns = (second + ahead_s) * S
        answer = leases.renew({"node": "n1", "uid": "u1", "sent_ns": sent_ns}, second * S, True)
        assert (answer["granted"], answer["sent_ns"]) == (True, sent_ns)
        assert run(leases, second, second + 0.75) == []
    assert [second for second, _ in run(leases, 600, 700)] == [614.0]
