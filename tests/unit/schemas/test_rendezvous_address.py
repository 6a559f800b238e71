"""Which addresses of a host are offered, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.rules.rendezvous_address import CANDIDATES_MAX, candidates, crosses_networks, is_private

CARRIED = [
    ("lo", "127.0.0.1"),
    ("eth0", "8.8.4.4"),
    ("docker0", "172.17.0.1"),
    ("br-1f2e", "172.18.0.1"),
    ("eth1", "10.0.0.5"),
    ("eth1", "169.254.3.3"),
    ("eth1", "fe80::1"),
    ("eth2", "fd00::5"),
    ("eth2", "2001:4860:4860::8888"),
]


def test_private_ones_come_first_and_what_every_host_has_is_left_out():
    private, public = ("10.0.0.5", "fd00::5"), ("8.8.4.4", "2001:4860:4860::8888")
    assert candidates((), CARRIED, "8.8.4.4") == (*private, *public)
    assert candidates((), CARRIED, "gpu-01.example") == (*private, "gpu-01.example", *public)
    assert candidates((), CARRIED, "fd00::5") == ("fd00::5", "10.0.0.5", *public), "the advertised one, where private"


def test_what_the_operator_said_is_all_there_is():
    assert candidates(("8.8.4.4", "10.0.0.5", "8.8.4.4"), CARRIED, "x") == ("8.8.4.4", "10.0.0.5")


def test_networks_are_crossed_where_a_private_address_was_not_to_be_reached():
    offered = ("10.0.0.5", "8.8.4.4")
    assert crosses_networks(offered, "8.8.4.4")
    assert not crosses_networks(offered, "10.0.0.5")
    assert not crosses_networks(("8.8.4.4", "10.0.0.5"), "8.8.4.4"), "preferred by the operator"
    assert not crosses_networks((), "8.8.4.4")


def test_names_are_not_private():
    assert [is_private(host) for host in ("10.1.2.3", "100.64.0.1", "fd00::1", "8.8.8.8", "gpu-01", "")] == [
        True, True, True, False, False, False
    ]  # fmt: skip


ADDRESS = st.one_of(st.ip_addresses().map(str), st.just("gpu-01.example"))


@given(st.lists(st.tuples(st.sampled_from(("eth0", "lo", "docker0")), st.ip_addresses().map(str))), ADDRESS)
def test_never_too_many_and_never_twice(carried, advertised):
    found = candidates((), carried, advertised)
    assert len(found) == len(set(found)) <= CANDIDATES_MAX and found
