"""One contract for both state stores: SQLite in the voter, dicts in tests and the simulator."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.state.dict_store import DictStore
from mesh.core.state.store import StateStore
from mesh.store import row_table
from mesh.store.row_codec import StateHash, decode_row
from mesh.store.row_table import RowTable

Changes = list[tuple[str, str, dict[str, Any] | None]]


class Store(StateStore, Protocol):
    """What the contract adds to StateStore: the frame of one index, each key's last row in the order of last writes."""

    def frame(self) -> Changes: ...


class DictUnderTest(DictStore):
    def frame(self) -> Changes:
        last: dict[tuple[str, str], dict[str, Any] | None] = {}
        for entity, key, row in self.take_changes():
            last.pop((entity, key), None)
            last[(entity, key)] = row
        return [(entity, key, row) for (entity, key), row in last.items()]


class TableUnderTest(RowTable):
    def frame(self) -> Changes:
        return [(c.entity, c.key, decode_row(c.row) if c.row is not None else None) for c in self.take_changes()]


def table() -> TableUnderTest:
    connection = apsw.Connection(":memory:")
    connection.execute(row_table.SCHEMA)
    connection.execute("BEGIN")
    return TableUnderTest(connection, StateHash())


MAKERS: list[Callable[[], Store]] = [DictUnderTest, table]


@pytest.fixture(params=MAKERS, ids=["dict", "sqlite"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    yield request.param()


def keys(rows: Iterator[tuple[str, dict[str, Any]]]) -> list[str]:
    return [key for key, _ in rows]


def test_what_was_put_is_got(store: Store) -> None:
    row = {
        "text": "é中",
        "n": -5,
        "big": 1 << 62,
        "none": None,
        "list": [1, [2]],
        "map": {"b": {}, "a": True},
        "raw": b"\x00\xff",
    }
    store.put("group", "g", row)
    assert store.get("group", "g") == row
    assert store.get("group", "other") is None
    assert store.get("other", "g") is None


def test_neither_side_sees_the_others_later_changes(store: Store) -> None:
    row: dict[str, Any] = {"list": [1]}
    store.put("e", "k", row)
    row["list"].append(2)
    got = store.get("e", "k")
    assert got == {"list": [1]}
    got["list"].append(3)
    assert store.get("e", "k") == {"list": [1]}
    assert store.frame() == [("e", "k", {"list": [1]})]


def test_scan_goes_by_code_points_with_prefix_after_and_limit(store: Store) -> None:
    for key in ("b/2", "a", "b/10", "b", "b/1", "c", "b0", "é", "\U0001f600", "\uffff"):
        store.put("e", key, {"key": key})
    store.put("f", "b/3", {})
    assert keys(store.scan("e")) == ["a", "b", "b/1", "b/10", "b/2", "b0", "c", "é", "\uffff", "\U0001f600"]
    assert keys(store.scan("e", "b/")) == ["b/1", "b/10", "b/2"]
    assert keys(store.scan("e", "b/", after="b/1")) == ["b/10", "b/2"]
    assert keys(store.scan("e", "b/", after="a")) == ["b/1", "b/10", "b/2"]
    assert keys(store.scan("e", "b/", limit=2)) == ["b/1", "b/10"]
    assert keys(store.scan("e", after="b0", limit=1)) == ["c"]
    assert keys(store.scan("e", "b/", after="z")) == []
    assert keys(store.scan("nothing")) == []


def test_a_scan_shows_the_rows_at_its_call(store: Store) -> None:
    for key in "abc":
        store.put("e", key, {"v": 1})
    seen = []
    for key, row in store.scan("e"):
        seen.append((key, row["v"]))
        store.put("e", "c", {"v": 2})
        store.delete("e", "b")
        store.put("e", "d", {"v": 1})
    assert seen == [("a", 1), ("b", 1), ("c", 1)]


def test_deleting_what_is_not_there_changes_nothing(store: Store) -> None:
    store.delete("e", "k")
    assert store.frame() == []


def test_a_frame_holds_the_last_row_of_each_key_once(store: Store) -> None:
    store.put("e", "a", {"v": 1})
    store.put("e", "b", {"v": 1})
    store.put("e", "a", {"v": 2})
    store.delete("e", "b")
    store.put("e", "c", {"v": 1})
    assert store.frame() == [("e", "a", {"v": 2}), ("e", "b", None), ("e", "c", {"v": 1})]
    assert store.frame() == []


def test_the_cache_is_bounded_and_never_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_table, "CACHE_BYTES", 10_000)
    monkeypatch.setattr(row_table, "CACHE_ROW_BYTES", 1_000)
    store = table()
    for turn in range(3):
        for n in range(100):
            store.put("e", f"{n}", {"turn": turn, "pad": "x" * (n * 13)})
            own = store.get("e", f"{n}")
            assert store.get("e", f"{n * 7 % 100}") is None or (own is not None and own["turn"] == turn)
            assert store._cached_bytes <= 10_000
    assert store._cached_bytes == sum(200 + len(raw or b"") for raw in store._cache.values())
    for n in range(0, 100, 3):
        store.delete("e", f"{n}")
    assert [store.get("e", f"{n}") is None for n in range(100)] == [n % 3 == 0 for n in range(100)]


NAMES = st.text("ab/1é", max_size=4)
OPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from("ef"),
            NAMES,
            st.dictionaries(NAMES, st.integers(-(1 << 63) + 1, (1 << 63) - 1), max_size=3),
        ),
        st.tuples(st.just("delete"), st.sampled_from("ef"), NAMES, st.just({})),
        st.tuples(st.just("frame"), st.just("e"), st.just(""), st.just({})),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(OPS, NAMES, NAMES)
def test_both_stores_do_the_same(ops: list[tuple[str, str, str, dict[str, int]]], prefix: str, after: str) -> None:
    twins: list[Store] = [DictUnderTest(), table()]
    for op, entity, key, row in ops:
        results = []
        for store in twins:
            if op == "put":
                store.put(entity, key, dict(row))
            elif op == "delete":
                store.delete(entity, key)
            results.append(store.frame() if op == "frame" else store.get(entity, key))
        assert results[0] == results[1]
    for entity in "ef":
        scans = [list(store.scan(entity, prefix, after)) for store in twins]
        assert scans[0] == scans[1]


@settings(max_examples=60, deadline=None)
@given(OPS)
def test_undoing_an_index_leaves_rows_and_hash_as_before(ops: list[tuple[str, str, str, dict[str, int]]]) -> None:
    store = table()
    half = len(ops) // 2
    for at, (op, entity, key, row) in enumerate(ops):
        if at == half:
            store.frame()
            before = (store._hash.value, list(store.scan("e")), list(store.scan("f")))
        if op == "put":
            store.put(entity, key, dict(row))
        elif op == "delete":
            store.delete(entity, key)
        elif at < half:
            store.frame()
    if ops:
        store.undo_changes()
        assert (store._hash.value, list(store.scan("e")), list(store.scan("f"))) == before


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers(-(1 << 63) + 1, (1 << 63) - 1), max_size=3), max_size=6),
    st.randoms(use_true_random=False),
)
def test_equal_state_has_equal_hash_however_it_came_about(rows: dict[str, dict[str, int]], rng: Any) -> None:
    one, other = table(), table()
    for key, row in rows.items():
        one.put("e", key, row)
    names = list(rows)
    rng.shuffle(names)
    other.put("e", "detour", {"x": 1})
    for key in names:
        other.put("e", key, {"wrong": 1})
    for key in reversed(names):
        other.put("e", key, dict(reversed(list(rows[key].items()))))
    other.delete("e", "detour")
    assert one._hash.hex() == other._hash.hex()
    other.put("e", "more", {})
    assert one._hash.hex() != other._hash.hex()
