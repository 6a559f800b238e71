"""Hypothesis strategies of everything that may travel."""

from __future__ import annotations

from hypothesis import strategies as st

from mesh.core.swim import (
    Ack,
    Gossip,
    Meta,
    Nack,
    Packet,
    Ping,
    PingReq,
    Reason,
    Refuse,
    State,
    Sync,
    SyncReply,
    Update,
)

numbers = st.integers(0, 2**48)
names = st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z0-9](\.[a-z0-9]{1,8})?", fullmatch=True)
ports = st.integers(1, 65_535)
ips = st.ip_addresses().filter(lambda ip: not (ip.is_unspecified or ip.is_multicast))
addresses = st.builds(lambda ip, port: f"{ip if ip.version == 4 else f'[{ip}]'}:{port}", ips, ports) | st.builds(
    lambda name, port: f"{name}:{port}", names, ports
)
printable = st.text(st.characters(categories=["L", "N", "P"]), max_size=20)
tags = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), printable, max_size=3).map(
    lambda pairs: tuple(sorted(pairs.items()))
)
metas = st.builds(Meta, st.lists(addresses, min_size=1, max_size=2).map(tuple), printable, tags)
updates = st.builds(
    Update, names, st.integers(0, 2**62), st.sampled_from(State), metas, names, st.integers(0, 1_000_000)
)
messages = st.one_of(
    st.builds(Ping, numbers),
    st.builds(PingReq, numbers, names, st.integers(0, 60_000)),
    st.builds(Ack, numbers),
    st.builds(Nack, numbers),
    st.builds(Refuse, st.sampled_from(Reason), st.integers(0, 2**62)),
    *map(st.just, (Gossip(), Sync(), SyncReply())),
)
packets = st.builds(
    Packet, names, names, st.integers(0, 2**62), st.integers(0, 2**62), names | st.just(""), messages,
    st.lists(updates, max_size=4).map(tuple),
)  # fmt: skip
