"""What leaves: packets to one address travel together, a silent host holds up nobody else, and queues are bounded."""

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager

import msgpack
import pytest

from mesh.core.swim import Gossip, Meta, Oversized, Packet, Ping, State, Sync, Truncated, Update, WireError, decode
from mesh.core.swim.limits import SYNC_MAX
from mesh.gossip.batch import BODY_MAX, PACKETS_MAX, pack, size, unpack
from mesh.gossip.carrier import Answer, HostRefused, NoAnswer
from mesh.gossip.links import POSTS_PER_ADDRESS, QUEUE_MAX, Links
from tests.waiting import eventually


class Slow:
    """Answers once it is let go; refuses or stays silent at the addresses told."""

    def __init__(self):
        self.sent = []
        self.go = asyncio.Event()
        self.refusing, self.silent = set(), set()

    async def exchange(self, address, body, timeout_s):
        self.sent.append((address, [decode(packet).seq for packet in unpack(body)]))
        if address in self.refusing:
            raise HostRefused("refused")
        if address in self.silent:
            await asyncio.sleep(timeout_s)
            raise NoAnswer("timeout")
        await self.go.wait()
        return Answer(pack([]))


def packet(seq, message=None, to="n2", updates=()):
    return Packet("m1", "n1", 1, seq, to, message or Gossip(), updates)


@asynccontextmanager
async def linked():
    carrier, counts, heard, unreachable = Slow(), Counter(), [], []
    links = Links(carrier, 0.05, heard.append, unreachable.extend, counts)
    try:
        yield links, carrier, counts, heard, unreachable
    finally:
        await links.emptied(0)


async def test_what_waits_for_an_address_travels_together():
    async with linked() as (links, carrier, _, heard, _):
        for seq in range(1, 6):
            links.put("a:1", packet(seq))
            await asyncio.sleep(0)
        await eventually("one post on its way", lambda: len(carrier.sent) == POSTS_PER_ADDRESS)
        carrier.go.set()
        await eventually(lambda: f"all packets but {heard}", lambda: len(heard) == POSTS_PER_ADDRESS + 1)
        assert carrier.sent == [("a:1", [1]), ("a:1", [2]), ("a:1", [3, 4, 5])]


async def test_one_silent_host_holds_up_nobody_else_and_its_queue_is_bounded():
    async with linked() as (links, carrier, counts, heard, _):
        carrier.silent.add("a:1")
        carrier.go.set()
        for seq in range(QUEUE_MAX * 3):
            links.put("a:1", packet(seq))
        links.put("b:1", packet(0, to="n3"))
        await eventually("a packet", lambda: heard)
        assert ("b:1", [0]) in carrier.sent
        assert QUEUE_MAX <= counts["queue_full"] <= 2 * QUEUE_MAX
        await links.emptied(10)
        assert max(seqs[-1] for _, seqs in carrier.sent) == QUEUE_MAX * 3 - 1 and "timeout" in links.trouble(
            time.monotonic()
        )


async def test_only_a_host_that_refuses_is_told_and_only_of_whom_was_pinged():
    async with linked() as (links, carrier, counts, _, unreachable):
        carrier.refusing.add("a:1")
        carrier.silent.add("b:1")
        links.put("a:1", packet(1))
        links.put("a:1", packet(2, Ping(7)))
        links.put("b:1", packet(3, Ping(8), to="n3"))
        await links.emptied(10)
        assert links.trouble(time.monotonic() + 61) == "", "what is over is no trouble"
        assert unreachable == ["n2"] and counts["unanswered"] == len(carrier.sent)


async def test_a_body_is_never_too_large_for_its_reader():
    update = Update("n3", 1, State.ALIVE, Meta(("127.0.0.1:1",), "", (("t", "x" * 128),)), "n3")
    whole = packet(1, Sync(), updates=(update,) * 2_400)
    async with linked() as (links, carrier, _, _, _):
        carrier.go.set()
        links.put("a:1", packet(0))
        for _ in range(3):
            links.put("a:1", whole)
        for seq in range(PACKETS_MAX + 8):
            links.put("a:1", packet(seq))
        await links.emptied(10)
        assert sum(len(seqs) for _, seqs in carrier.sent) == PACKETS_MAX + 12
        assert max(len(seqs) for _, seqs in carrier.sent) <= PACKETS_MAX


def test_the_largest_packets_fit_a_body():
    assert len(pack([b"x" * SYNC_MAX])) <= BODY_MAX and size(b"x" * SYNC_MAX) <= BODY_MAX


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", Truncated),
        (pack([b"abc"])[:-1], Truncated),
        (b"x" * (BODY_MAX + 1), Oversized),
        (msgpack.packb([2, []]), WireError),
        (msgpack.packb([True, []]), WireError),
        (msgpack.packb([1]), WireError),
        (msgpack.packb([1, None]), WireError),
        (msgpack.packb([1, [1]]), WireError),
        (msgpack.packb([1, ["text"]]), WireError),
        (msgpack.packb({1: []}), WireError),
        (pack([b""] * (PACKETS_MAX + 1)), WireError),
        (pack([]) + b"\x00", WireError),
        (b"\x92\x01\xdd\xff\xff\xff\xff", WireError),
    ],
)
def test_what_is_no_body(body, error):
    with pytest.raises(error):
        unpack(body)
