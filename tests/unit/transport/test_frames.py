"""Peer frames and session framing: sizes hold, foreign frames are dropped, malformed ones are faults."""

import contextlib
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.raft.entry import Entry, EntryKind
from mesh.core.raft.message import Message, MsgType
from mesh.transport.codec import ANSWER_MAX, FrameReader, WireFault, framed, pack, unpack
from mesh.transport.peers import FRAME_FILL, FRAME_ITEMS_MAX, Counters, Envelope, PeerLink, read_frame
from schemas.limits import ENTRY_MAX, FRAME_MAX, WEBSOCKET_MAX

ME = Envelope("c", 1, 2)
PEERS = frozenset({1, 3})
HEARTBEAT = Message(MsgType.HEARTBEAT, 2, 1, term=5)


def frame(*items: Any, head: tuple[Any, ...] = ("c", 1, 1, 2)) -> bytes:
    return pack([*head, list(items)])


def test_a_frame_comes_through_whole() -> None:
    append = Message(MsgType.APP, 2, 1, 5, 4, 9, [Entry(10, 5, EntryKind.NORMAL, b"data")], 9)
    received = read_frame(
        frame(
            HEARTBEAT.to_wire(),
            ["call", 7, "propose", pack([{"t": "x"}, None])],
            append.to_wire(),
            ["answer", 3, pack([{"ok": 1}, None])],
        ),
        ME,
        PEERS,
    )
    assert received is not None
    assert received.messages == [HEARTBEAT, append]
    assert received.calls == [(7, "propose", [{"t": "x"}, None])]
    assert received.answers == [(3, {"ok": 1}, None)]


@pytest.mark.parametrize("head", [("d", 1, 1, 2), ("c", 2, 1, 2), ("c", 1, 9, 2), ("c", 1, 1, 3), ("c", 1, 2, 2)])
def test_foreign_frames_are_not_read(head: tuple[Any, ...]) -> None:
    assert read_frame(frame(HEARTBEAT.to_wire(), head=head), ME, PEERS) is None


MALFORMED = [
    b"", b"\xc1", pack([]), pack({"a": 1}), pack(["c", 1, 1, 2, 5]), pack(["c", 1, 1, 2, [HEARTBEAT.to_wire()]])[:-1],
    frame(5), frame([]), frame(["call"]), frame(["call", 1, 2, 3]), frame(["answer", "x", pack([1, 2])]),
    frame(["answer", 1, pack([1])]), frame(["answer", 1, b"\xc1"]), frame(["call", 1, "x", [1]]),
    frame(["call", "n", "x", pack(1)]),
    frame(["vote", 1, 2, 3]),
    frame(Message(MsgType.HEARTBEAT, 2, 3, term=5).to_wire()), frame(*[HEARTBEAT.to_wire()] * 65),
]  # fmt: skip


@pytest.mark.parametrize("raw", MALFORMED)
def test_malformed_frames_are_faults(raw: bytes) -> None:
    with pytest.raises(WireFault):
        read_frame(raw, ME, PEERS)


@pytest.mark.attack(42)
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_fault(raw: bytes) -> None:
    for data in (raw, pack(["c", 1, 1, 2, [raw]]), pack(["c", 1, 1, 2]) + raw):
        with contextlib.suppress(WireFault):
            read_frame(data, ME, PEERS)


def link() -> PeerLink:
    made = PeerLink(ME, 1, "", "", None, Counters(), lambda peer: None)  # type: ignore[arg-type]  # it dials nobody
    made.connected = True
    return made


def append(size: int) -> Message:
    return Message(MsgType.APP, 1, 2, 5, 5, 0, [Entry(1, 5, EntryKind.NORMAL, b"x" * size)])


def test_frames_stay_below_the_limit_whatever_waits() -> None:
    sender = link()
    sender.send([append(ENTRY_MAX) for _ in range(20)] + [append(10) for _ in range(200)])
    for number in range(30):
        sender.call(number, "propose", pack([{"document": {"deep": ["x" * 100_000]}}, None]))
        sender.answer(number, {"data": {"deep": ["x" * 100_000]}}, None)
    counts = []
    while items := sender._next_items():
        assert len(items) <= FRAME_ITEMS_MAX
        assert len(pack(["c" * 64, 1, 1 << 62, 1 << 62, items])) < FRAME_MAX < WEBSOCKET_MAX
        counts.append(len(items))
    assert sum(counts) == 280


def test_the_limits_leave_room_for_one_more_full_message() -> None:
    # A message holds max_msg_bytes = ENTRY_MAX of entries, or one entry that is larger by its envelope.
    assert FRAME_FILL + 2 * ENTRY_MAX <= FRAME_MAX


def test_a_full_queue_drops_the_oldest_and_counts() -> None:
    sender = link()
    counters = sender._counters
    for number in range(5000):
        sender.call(number, "x", b"")
    assert counters.dropped_items == 5000 - 4096
    assert sender._next_items()[0][1] == counters.dropped_items
    for _ in range(100):
        sender.send([append(ENTRY_MAX)])
    assert sender._queued_bytes <= 16 * 1024 * 1024


def test_urgent_items_go_first() -> None:
    sender = link()
    sender.send([append(10)])
    sender.call(1, "renew", b"", urgent=True)
    assert sender._next_items()[0][2] == "renew"


def test_without_a_link_nothing_is_kept() -> None:
    sender = link()
    sender.connected = False
    sender.send([append(10)])
    assert sender.call(1, "propose", b"") is False
    assert sender._next_items() == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=10), st.integers(1, 9))
def test_frames_survive_any_cut_of_the_stream(payloads: list[bytes], step: int) -> None:
    stream = b"".join(framed(p) for p in payloads)
    reader = FrameReader()
    read = [f for at in range(0, len(stream), step) for f in reader.feed(stream[at : at + step])]
    assert read == payloads


@pytest.mark.attack(40)
def test_a_frame_beyond_the_limit_is_a_fault_before_it_is_read() -> None:
    with pytest.raises(WireFault, match="beyond the limit"):
        list(FrameReader().feed((WEBSOCKET_MAX + 1).to_bytes(4, "big")))
    with pytest.raises(WireFault, match="beyond the limit"):
        list(FrameReader(ANSWER_MAX).feed((ANSWER_MAX + 1).to_bytes(4, "big")))


@pytest.mark.parametrize(
    "raw", [b"", b"\x93\x01", b"\xc1", b"\x01\x01", b"\x81\x01\x01", b"\x91" * 3000, b"\xdd\xff\xff\xff\xff"]
)
def test_what_is_no_message_is_a_fault(raw: bytes) -> None:
    with pytest.raises(WireFault):
        unpack(raw)


def test_messages_come_back_as_they_were() -> None:
    message = [1, "propose", {"command": {"t": "Noop", "payload": b"\x00", "n": [None, True, 1 << 62, 1.5, "é"]}}]
    assert unpack(pack(message)) == message
    assert msgpack.unpackb(pack(message)) == message
