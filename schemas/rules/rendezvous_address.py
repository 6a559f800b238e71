"""At which of a host's addresses the other ranks of a group look for its rank 0."""

import ipaddress
from collections.abc import Iterable, Sequence

CANDIDATES_MAX = 8
# Ends and bridges of containers and virtual machines: every host has the same address there.
_INSIDE = ("docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxc", "lxd", "kube", "vnet")


def candidates(said: Sequence[str], carried: Iterable[tuple[str, str]], advertised: str) -> tuple[str, ...]:
    """In order of preference. said: what the operator listed, then it is that; carried: (interface, address) of this
    host; advertised: the host under which others reach its API.

    Private ones first: they are mostly the faster way, and cost nothing. Whether they lead anywhere is found by
    probing."""
    if said:
        return tuple(dict.fromkeys(said))[:CANDIDATES_MAX]
    own = [address for name, address in carried if not name.startswith(_INSIDE) and _reachable(address)]
    private = [address for address in own if is_private(address)]
    public = [address for address in own if not is_private(address)]
    first, last = ([advertised], []) if is_private(advertised) else ([], [advertised])
    return tuple(dict.fromkeys([*first, *private, *last, *public]))[:CANDIDATES_MAX]


def is_private(host: str) -> bool:
    """Of a network of its own, as 10.0.0.0/8; False of names."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return not address.is_global


def crosses_networks(offered: Sequence[str], chosen: str) -> bool:
    """Whether the ranks meet at a public address because a private one was not to be reached by all."""
    return not is_private(chosen) and any(is_private(address) for address in offered[: _place(offered, chosen)])


def _place(offered: Sequence[str], chosen: str) -> int:
    return offered.index(chosen) if chosen in offered else len(offered)


def _reachable(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local)
