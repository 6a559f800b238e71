"""The wire form: every message survives the round trip, and no other shape gets in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.raft import Entry, EntryKind, Message, MsgType, WireError

numbers = st.integers(0, 2**63 - 1)
members = st.integers(1, 2**63 - 1)
PEER_TYPES = [t for t in MsgType if t not in (MsgType.HUP, MsgType.BEAT, MsgType.PROP)]


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(PEER_TYPES))
    term = 0 if kind is MsgType.READ_INDEX else draw(st.integers(1, 2**40))
    log_term = draw(st.integers(0, term))
    index = draw(st.integers(0, 2**40))
    entries = []
    if kind is MsgType.APP:
        terms = sorted(draw(st.lists(st.integers(max(log_term, 1), term), max_size=5)))
        entries = [
            Entry(index + 1 + i, t, draw(st.sampled_from(EntryKind)), draw(st.binary(max_size=20)))
            for i, t in enumerate(terms)
        ]
    return Message(
        kind, draw(members), draw(members), term, log_term, index, entries, draw(numbers),
        draw(st.booleans()), draw(numbers), draw(st.binary(max_size=32)),
    )  # fmt: skip


@given(messages())
def test_round_trip(message: Message) -> None:
    assert Message.from_wire(message.to_wire()) == message


junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=8) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=40,
)


@given(junk)
def test_junk_is_refused(raw: Any) -> None:
    with pytest.raises(WireError):
        Message.from_wire(raw)


@given(messages(), st.integers(0, 10), junk)
def test_one_wrong_field_is_refused_or_is_a_message(message: Message, at: int, value: Any) -> None:
    """Whatever replaces a field, the answer is a well-formed message or a WireError, nothing else."""
    raw = message.to_wire()
    raw[at] = value
    try:
        got = Message.from_wire(raw)
    except WireError:
        return
    assert Message.from_wire(got.to_wire()) == got


def app(**changes: Any) -> list[Any]:
    m = Message(MsgType.APP, 2, 1, 5, 3, 7, [Entry(8, 4, EntryKind.NORMAL, b"x"), Entry(9, 5, EntryKind.NORMAL, b"y")])
    raw = m.to_wire()
    names = ["type", "to", "from", "term", "log_term", "index", "commit", "reject", "hint", "context", "entries"]
    for name, value in changes.items():
        raw[names.index(name)] = value
    return raw


@pytest.mark.parametrize(
    "changes",
    [
        {"type": 99},
        {"type": int(MsgType.HUP)},
        {"type": int(MsgType.PROP)},
        {"type": int(MsgType.VOTE)},  # may not carry entries
        {"to": 0},
        {"from": 0},
        {"from": -1},
        {"term": 0},
        {"term": True},
        {"term": 5.0},
        {"term": 2**63},
        {"term": 4},  # an entry of a later term than the sender's
        {"log_term": 5},  # terms fall along the log
        {"index": -1},
        {"reject": 0},
        {"context": "text"},
        {"context": b"x" * 257},
        {"entries": None},
        {"entries": [[4, 0]]},
        {"entries": [[4, 7, b""]]},
        {"entries": [[4, 0, "text"]]},
        {"entries": [[0, 0, b""]], "log_term": 0},
        {"entries": [[5, 0, b""], [4, 0, b""]]},
    ],
)
def test_refused(changes: dict[str, Any]) -> None:
    Message.from_wire(app())
    with pytest.raises(WireError):
        Message.from_wire(app(**changes))


def test_a_read_carries_no_term() -> None:
    raw = Message(MsgType.READ_INDEX, 1, 2, context=b"r").to_wire()
    assert Message.from_wire(raw).context == b"r"
    raw[3] = 1
    with pytest.raises(WireError, match="READ_INDEX with term 1"):
        Message.from_wire(raw)
