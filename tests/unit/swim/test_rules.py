"""The small rules, each on its own: formulas, order, queue, replay window."""

from math import ceil, log, log10
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.swim import LAN, LOCAL, PROFILES, WAN, Meta, State, Update, plain_swim
from mesh.core.swim.awareness import Awareness
from mesh.core.swim.limits import MEMBERS_MAX, REPLAY_WINDOW
from mesh.core.swim.probe_order import ProbeOrder, pick
from mesh.core.swim.replay import Freshness, ReplayGuard
from mesh.core.swim.retransmit import RetransmitQueue, transmit_limit
from mesh.core.swim.rtt import RoundTrips
from mesh.core.swim.suspicion import Suspicion, shortest_ns, timeout_ns

MS, S = 1_000_000, 1_000_000_000


def about(node: str, incarnation: int = 0, version: str = "1.0") -> Update:
    return Update(node, incarnation, State.ALIVE, Meta(("10.0.0.1:7460",), version), node)


# -- suspicion


@pytest.mark.parametrize(("members", "seconds"), [(1, 4), (10, 4), (100, 8), (1000, 12)])
def test_the_shortest_suspicion_grows_with_the_logarithm(members: int, seconds: float) -> None:
    assert shortest_ns(LAN, members) == pytest.approx(seconds * S)


@pytest.mark.parametrize(("confirmed", "seconds"), [(0, 24), (1, 24 - 20 * log(2) / log(3)), (2, 4), (3, 4)])
def test_confirmations_shorten_it(confirmed: int, seconds: float) -> None:
    assert timeout_ns(4 * S, 24 * S, confirmed, 2) == pytest.approx(seconds * S, abs=MS)


def test_only_others_confirm() -> None:
    suspicion = Suspicion(LAN, 10, "a", 0)
    assert suspicion.deadline_ns() == 24 * S
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b") and not suspicion.confirm("b")
    assert suspicion.confirm("c")
    assert suspicion.deadline_ns() == 4 * S
    assert not suspicion.confirm("d"), "more than needed is no news to spread"


@pytest.mark.parametrize(("members", "others"), [(2, 0), (3, 1), (4, 2), (5, 2)])
def test_no_more_confirmations_are_waited_for_than_can_come(members: int, others: int) -> None:
    suspicion = Suspicion(LAN, members, "a", 0)
    confirmed = [suspicion.confirm(name) for name in "bcd"]
    assert sum(confirmed) == others and suspicion.deadline_ns() == 4 * S


# -- awareness, round trips, profiles


def test_local_health_stays_within_its_bounds() -> None:
    health = Awareness(8)
    health.add(-3)
    assert health.scale(S) == S
    for _ in range(20):
        health.add(1)
    assert health.scale(S) == 8 * S
    assert Awareness(1).scale(S) == S


def test_timeouts_follow_the_round_trip_within_the_profile() -> None:
    trips = RoundTrips(LAN)
    assert trips.timeout_ns("a") == 500 * MS
    for _ in range(50):
        trips.measured("a", 1 * MS)
    assert trips.timeout_ns("a") == 150 * MS
    for _ in range(50):
        trips.measured("b", 240 * MS)
    assert 240 * MS < trips.timeout_ns("b") < 300 * MS
    assert trips.timeout_ns("a") == 150 * MS, "each by its own"
    assert trips.timeout_ns("new") > 240 * MS, "the estimate over all stands in"
    for _ in range(50):
        trips.measured("b", 9 * S)
    assert trips.timeout_ns("b") == 500 * MS


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_profiles_hold_together(profile) -> None:
    """A refutation has time: even the shortest suspicion outlives an accusation and its answer crossing 1,250 members,
    twice over."""
    crossing_s = (log(1250) / log(profile.gossip_nodes + 1) + log(1250) / profile.gossip_nodes) * (
        profile.gossip_interval_ms / 1000
    )
    assert 2 * 2 * crossing_s < shortest_ns(profile, 1250) / S
    assert profile.stall_ms < profile.probe_interval_ms
    plain = plain_swim(profile)
    assert Suspicion(plain, 100, "a", 0).deadline_ns() == shortest_ns(profile, 100)


def test_profiles_differ() -> None:
    assert LOCAL.probe_timeout_max_ms < LAN.probe_timeout_max_ms < WAN.probe_timeout_max_ms


# -- probe order


def test_every_member_is_probed_once_a_round() -> None:
    order = ProbeOrder(Random(1))
    assert order.next() == ""
    for name in "abcdefgh":
        order.add(name)
    while order.next() != order.names[-1]:
        pass
    rounds = [[order.next() for _ in range(8)] for _ in range(20)]
    assert all(sorted(one) == list("abcdefgh") for one in rounds)
    assert len({tuple(one) for one in rounds}) > 15, "each round has its own order"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=30), st.randoms())
def test_members_come_and_go_between_probes(steps: list[tuple[bool, str]], rng: Random) -> None:
    """Whoever stays is probed within 2 N - 1 intervals."""
    order = ProbeOrder(rng)
    present: set[str] = set()
    for come, name in steps:
        if come and name not in present:
            order.add(name)
            present.add(name)
        elif not come:
            order.discard(name)
            present.discard(name)
        order.next()
    probed = [order.next() for _ in range(2 * len(present) - 1)] if present else []
    assert set(probed) == present


def test_new_members_are_inserted_anywhere() -> None:
    places = set()
    for seed in range(200):
        order = ProbeOrder(Random(seed))
        for name in ("a", "b", "c", "new"):
            order.add(name)
        places.add(order.names.index("new"))
    assert places == {0, 1, 2, 3}


@given(st.integers(0, 12), st.integers(0, 5), st.sets(st.integers(0, 11), max_size=4), st.randoms())
def test_picks_are_different_and_allowed(size: int, count: int, without: set[int], rng: Random) -> None:
    names = [str(n) for n in range(size)]
    chosen = pick(rng, names, count, [str(n) for n in without])
    allowed = [name for name in names if int(name) not in without]
    assert len(set(chosen)) == len(chosen) == min(count, len(allowed))
    assert set(chosen) <= set(allowed)


# -- retransmit queue


@pytest.mark.parametrize("members", [1, 8, 128, 1000])
def test_an_update_is_sent_lambda_log_n_times(members: int) -> None:
    limit = transmit_limit(4, members)
    assert limit == 4 * ceil(log10(members + 1))
    queue = RetransmitQueue()
    queue.put(about("a"))
    assert [len(queue.take(1000, limit)) for _ in range(limit + 2)] == [1] * limit + [0, 0]
    assert not queue


def test_the_least_sent_go_first_and_the_newest_of_those() -> None:
    queue = RetransmitQueue()
    for name in "abc":
        queue.put(about(name))
    room = 2 * len(about("a").wire())
    assert [update.node for update in queue.take(room, 4)] == ["c", "b"]
    queue.put(about("d"))
    assert [update.node for update in queue.take(room, 4)] == ["d", "a"]
    assert [update.node for update in queue.take(room, 4)] == ["d", "a"]


def test_a_newer_update_replaces_the_older_and_starts_anew() -> None:
    queue = RetransmitQueue()
    queue.put(about("a", 1))
    queue.take(1000, 2)
    queue.put(about("a", 2))
    assert len(queue) == 1
    assert [[update.incarnation for update in queue.take(1000, 2)] for _ in range(3)] == [[2], [2], []]


@given(
    st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(1, 30)), max_size=20),
    st.lists(st.integers(0, 400), max_size=30),
    st.integers(1, 6),
)
def test_packets_are_bounded_and_every_update_leaves_in_the_end(
    puts: list[tuple[str, int]], rooms: list[int], limit: int
) -> None:
    queue = RetransmitQueue()
    for node, length in puts:
        queue.put(about(node, version="v" * length))
    sent: dict[str, int] = {}
    for room in [*rooms, *[100_000] * limit]:
        taken = queue.take(room, limit)
        assert sum(len(update.wire()) for update in taken) <= room
        for update in taken:
            sent[update.node] = sent.get(update.node, 0) + 1
    assert not queue and sent == dict.fromkeys((node for node, _ in puts), limit)


# -- replay window


def test_each_packet_counts_once() -> None:
    guard = ReplayGuard()
    order = list(range(1, 500))
    Random(1).shuffle(order)
    assert all(guard.check("a", 1, seq) is Freshness.FRESH for seq in order)
    assert all(guard.check("a", 1, seq) is Freshness.REPLAYED for seq in order)
    assert guard.check("b", 1, 5) is Freshness.FRESH, "of each sender"


def test_what_is_older_than_the_window_counts_as_seen() -> None:
    guard = ReplayGuard()
    assert guard.check("a", 1, 10_000) is Freshness.FRESH
    assert guard.check("a", 1, 10_000 - REPLAY_WINDOW + 1) is Freshness.FRESH
    assert guard.check("a", 1, 10_000 - REPLAY_WINDOW) is Freshness.REPLAYED


def test_an_earlier_life_is_not_heard_any_more() -> None:
    guard = ReplayGuard()
    guard.check("a", 5, 100)
    assert guard.check("a", 6, 1) is Freshness.FRESH
    assert guard.check("a", 5, 101) is Freshness.STALE_BOOT
    assert guard.boot_of("a") == 6


def test_names_made_up_do_not_fill_the_memory() -> None:
    guard = ReplayGuard()
    for number in range(2 * MEMBERS_MAX + 100):
        guard.check(f"x{number}", 1, 1)
    assert len(guard._seen) == 2 * MEMBERS_MAX
