"""What a subscriber is sent, and the places it may resume from."""

from typing import Any

import pytest

from mesh.store.feed import Change, FeedFilter, FeedFrame, Token, coalesce, nodes_of


def change(entity: str, key: str, *nodes: str) -> Change:
    return Change(entity, key, b"row", nodes)


FRAME = FeedFrame(
    9,
    (
        change("meta", "cluster"),
        change("node", "n1", "n1"),
        change("node", "n2", "n2"),
        change("group", "g1", "n1", "n2"),
        change("group", "g10", "n2"),
        change("active", "g1"),
        change("task", "g1/0001/00000", "n1"),
        change("task", "g10/0001/00000", "n2"),
        change("hold", "n1/g1/0001/00000", "n1"),
        change("hold", "n2/g10/0001/00000", "n2"),
        change("ckpt", "/data/x"),
        change("event", "g1/00000001"),
        change("event", "g10/00000001"),
    ),
)


@pytest.mark.parametrize(
    ("feed_filter", "keys"),
    [
        ({"node": "n1"}, ["cluster", "n1", "g1", "g1/0001/00000", "n1/g1/0001/00000"]),
        ({"node": "n3"}, ["cluster"]),
        ({"group": "g1"}, ["g1", "g1", "g1/0001/00000", "n1/g1/0001/00000", "g1/00000001"]),
        ({"group": "g"}, []),
        ({"active": True}, [c.key for c in FRAME.changes if c.entity != "event"]),
        ({"all": True}, [c.key for c in FRAME.changes]),
    ],
)
def test_filters_pick_what_they_name(feed_filter: dict[str, Any], keys: list[str]) -> None:
    assert [c.key for c in FeedFilter.parse(feed_filter).select(FRAME)] == keys


def test_a_frame_of_a_thousand_hosts_is_sorted_once_and_right() -> None:
    nodes = [f"n{i}" for i in range(1000)]
    tasks = [change("task", f"g/0001/{i:05d}", node) for i, node in enumerate(nodes)]
    frame = FeedFrame(1, (tasks[0], change("group", "g", *nodes), change("meta", "cluster"), *tasks[1:]))
    for i in (0, 1, 999):
        keys = [c.key for c in FeedFilter("node", f"n{i}").select(frame)]
        assert sorted(keys) == sorted(["g", "cluster", f"g/0001/{i:05d}"])
        assert keys == [c.key for c in frame.changes if c.key in keys]
    assert [c.key for c in FeedFilter("node", "other").select(frame)] == ["cluster"]


@pytest.mark.parametrize("raw", [None, {}, {"all": 1}, {"all": True, "node": "n"}, {"node": ""}, {"nodes": "n"}, "all"])
def test_what_is_no_filter_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match="a filter is"):
        FeedFilter.parse(raw)


@pytest.mark.parametrize("token", [Token("c", 1, 0), Token("a.b.c", 12, 1 << 60)])
def test_tokens_survive_the_way_out_and_back(token: Token) -> None:
    assert Token.parse(str(token)) == token


@pytest.mark.parametrize("raw", [None, 5, "", "c", "c.1", ".1.2", "c.x.2", "c.1.-2", "c.1.²", "c.1."])
def test_what_is_no_token_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=r"cluster\.epoch\.index"):
        Token.parse(raw)


def test_hosts_of_a_change_are_those_before_and_after() -> None:
    assert nodes_of("group", "g", {"nodes": ["a", "b"]}, {"nodes": ["b", "c"]}) == ("a", "b", "c")
    assert nodes_of("group", "g", None, {"nodes": None}) == ()
    assert nodes_of("task", "g/0001/00000", {"node": "a"}, None) == ("a",)
    assert nodes_of("task", "g/0001/00000", {"node": "a"}, {"node": "b"}) == ("b",)
    assert nodes_of("hold", "n/g/0001/00000", None, {}) == ("n",)
    assert nodes_of("event", "g/1", None, {}) == ()


def test_coalescing_keeps_the_last_row_and_every_host() -> None:
    changes = [change("group", "g", "a"), change("task", "t", "a"), Change("group", "g", None, ("b",))]
    assert coalesce(changes) == (change("task", "t", "a"), Change("group", "g", None, ("a", "b")))
