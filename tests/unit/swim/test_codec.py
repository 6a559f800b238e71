"""Every packet survives the round trip; no other bytes get in, whatever they are, and none takes long."""

import os
import time
from dataclasses import replace
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.core.swim import (
    Ack,
    Config,
    Gossip,
    Meta,
    Packet,
    Ping,
    PingReq,
    State,
    Swim,
    Sync,
    Update,
    WireError,
    decode,
    encode,
)
from mesh.core.swim.limits import MEMBERS_MAX, PACKET_MAX, SYNC_MAX, packet_holds_an_update
from mesh.core.swim.update import address_refusal, meta_refusal
from tests.security.mutation import mutated
from tests.unit.swim.packets import packets

FRAMES = int(os.environ.get("HF_SWIM_FRAMES", "100000"))
META = Meta(("10.0.0.1:7460", "[fd00::1]:7460"), "1.0", (("api", "10.0.0.1:7461"),))
PACKETS = [
    Packet("m1", "n1", 7, 3, "n2", Ping(12), (Update("n3", 4, State.SUSPECT, META, "n1"),)),
    Packet("m1", "n1", 7, 4, "n2", PingReq(12, "n3", 400)),
    Packet("m1", "n1", 7, 5, "", Sync(), tuple(Update(f"n{i}", i, State.ALIVE, META, f"n{i}") for i in range(1, 9))),
    Packet("m1", "n1", 7, 6, "n2", Gossip(), (Update("n3", 4, State.LEFT, META, "n3", 77),)),
]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(packets)
def test_round_trip(packet: Packet) -> None:
    assert decode(encode(packet)) == packet


FRAMES_OK = [encode(packet) for packet in PACKETS]


def test_mutated_frames_raise_the_typed_error_or_are_packets_within_the_limits() -> None:
    """And a member that receives them all keeps within its bounds. HF_SWIM_FRAMES says how many."""
    rng = Random(1)
    core = Swim(Config("n2", "m1", META, 1), Random(2), 0)
    refused = 0
    for number in range(FRAMES):
        frame = mutated(rng, FRAMES_OK)
        try:
            packet = decode(frame)
        except WireError:
            refused += 1
        else:
            assert all(meta_refusal(update.meta) == "" for update in packet.updates)
        core.receive(frame, number)
    # Most hit something, not all: else the mutations prove little.
    assert FRAMES * 0.5 < refused < FRAMES
    assert sum(core.counts[reason] for reason in ("malformed", "truncated", "oversized")) == refused
    assert len(core.records) <= MEMBERS_MAX and len(core.queue) <= MEMBERS_MAX


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x91" * SYNC_MAX,
        b"\xdd\xff\xff\xff\xff" + b"\xc0" * 1000,
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\x00\x01\x00\x00" + b"\x01\x01" * 65_536,
        b"\x98" + b"\xa1a" * 8,
        encode(PACKETS[0]) + b"\x00",
        encode(replace(PACKETS[0], updates=PACKETS[0].updates * 80)),
        encode(replace(PACKETS[2], updates=PACKETS[2].updates * 1000)),
        msgpack.packb([1, "m1", "n1", 1, 1, "n2", [2, 1], [msgpack.Timestamp(1)]]),
    ],
)
def test_bombs_are_refused_quickly(bomb: bytes) -> None:
    began = time.process_time()
    with pytest.raises(WireError):
        decode(bomb)
    assert time.process_time() - began < 0.5


WRONG: list[tuple[tuple[int, ...], Any]] = [
    ((0,), 2), ((0,), True), ((1,), "a b"), ((1,), "x" * 64), ((2,), "N1"), ((2,), ""), ((2,), "a" * 254), ((2,), None),
    ((3,), -1), ((3,), 1 << 63), ((4,), 1.0), ((4,), True), ((5,), "../x"), ((6,), [2]), ((6,), [2, -1]), ((6,), [9]),
    ((6,), [3, 1, "n3", 60_001]), ((6,), [8, 4, 0]), ((6,), []), ((6,), None), ((7,), None), ((7, 0), ["n3"]),
    ((7, 0, 0), "n 3"), ((7, 0, 1), (1 << 62) + 1), ((7, 0, 2), 4), ((7, 0, 2), False), ((7, 0, 3, 0), []),
    ((7, 0, 3, 0), ["0.0.0.0:7460"]), ((7, 0, 3, 0), ["[::]:1"]), ((7, 0, 3, 0), ["a:1"] * 5),
    ((7, 0, 3, 1), "\x1b[2J"),
    ((7, 0, 3, 2), [["b", "1"], ["a", "1"]]), ((7, 0, 3, 2), [["a", "1"], ["a", "1"]]), ((7, 0, 3, 2), [["a", 1]]),
    ((7, 0, 3, 2), [["a", "x" * 129]]), ((7, 0, 4), ""), ((7, 0, 5), -1),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), WRONG, ids=str)
def test_one_wrong_field_is_refused(path: tuple[int, ...], value: Any) -> None:
    raw = msgpack.unpackb(encode(PACKETS[0]))
    assert decode(msgpack.packb(raw)) == PACKETS[0]
    spot = raw
    for step in path[:-1]:
        spot = spot[step]
    spot[path[-1]] = value
    with pytest.raises(WireError):
        decode(msgpack.packb(raw))


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(WireError):
        decode(noise)


@pytest.mark.parametrize(
    "address", ["10.0.0.1:7460", "gpu-07.site_a:1", "[fd00::1]:65535", "a:80", "127.0.0.1:7460", "GPU:7460"]
)
def test_addresses_that_are_spread(address: str) -> None:
    assert address_refusal(address) == ""


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:7460", "[::]:7460", "fd00::1:7460", "[10.0.0.1]:1", "a", "a:0", "a:65536", "a:٣", "a b:1", "224.0.0.1:1",
     "[a]:1", ":1", "x" * 300 + ":1", "-a:1", "a:+1"],
)  # fmt: skip
def test_addresses_that_are_not(address: str) -> None:
    assert address_refusal(address) != ""


def test_the_longest_names_fit_a_packet() -> None:
    assert packet_holds_an_update()
    name = ".".join(["a" * 61] * 4)
    longest = Update(name, 1 << 62, State.SUSPECT, Meta((f"{name}:65535",), "v" * 32, (("t", "x" * 128),)), name)
    packet = Packet("m" * 63, name, 1 << 62, 1 << 62, name, PingReq(1 << 48, name, 60_000), (longest, longest))
    assert len(encode(packet)) <= PACKET_MAX and decode(encode(packet)) == packet
    assert len(encode(replace(packet, message=Ack(1), updates=()))) < PACKET_MAX // 4
