"""The interfaces of this machine, whatever they are: what is said agrees with the kernel's own words."""

import ipaddress
import socket
from pathlib import Path

from agentd.interfaces import interfaces, leading_to


def test_every_interface_that_is_named_exists_and_carries_an_address_one_can_bind():
    found = interfaces()
    assert ("lo", "127.0.0.1") in found
    assert {one.name for one in found} <= {path.name for path in Path("/sys/class/net").iterdir()}
    for one in found:
        address = ipaddress.ip_address(one.address)
        assert not address.is_link_local or address.version == 4
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_STREAM) as holder:
            holder.bind((one.address, 0))


def test_an_own_address_is_carried_and_loopback_leads_only_to_loopback():
    assert leading_to("127.0.0.1", 20_000) == leading_to("127.200.3.1", 20_000) == "lo"
    for one in interfaces():
        # A network in which loopback carries a global address is not of interest.
        if one.name != "lo":
            assert leading_to(one.address, 20_000) == one.name


def test_names_and_nonsense_lead_nowhere():
    for host in ("gpu-01.example", "", "300.1.1.1", "0.0.0.0x"):
        assert leading_to(host, 20_000) is None
