"""What only the in-memory store has; the shared contract is tested for both stores in tests/contract."""

from mesh.core.state.dict_store import DictStore


def test_rows_are_not_shared_with_callers():
    store = DictStore()
    row = {"a": [1]}
    store.put("x", "k", row)
    row["a"].append(2)
    got = store.get("x", "k")
    got["a"].append(3)
    ((_, scanned),) = store.scan("x")
    scanned["a"].append(4)
    assert store.get("x", "k") == {"a": [1]}


def test_changes_are_taken_once_in_order_each_as_written():
    store = DictStore()
    store.put("x", "k", {"n": 1})
    store.put("x", "k", {"n": 2})
    store.delete("x", "k")
    store.delete("x", "k")
    assert store.take_changes() == [("x", "k", {"n": 1}), ("x", "k", {"n": 2}), ("x", "k", None)]
    assert store.take_changes() == []


def test_scans_bound_by_prefix_place_and_number():
    store = DictStore()
    for key in ("a/2", "b/1", "a/1", "a", "a/10", "c"):
        store.put("x", key, {})
    keys = [key for key, _ in store.scan("x")]
    assert keys == sorted(keys)
    assert [key for key, _ in store.scan("x", "a/")] == ["a/1", "a/10", "a/2"]
    assert [key for key, _ in store.scan("x", "a/", after="a/1")] == ["a/10", "a/2"]
    assert [key for key, _ in store.scan("x", "a/", after="a/10", limit=1)] == ["a/2"]
    assert [key for key, _ in store.scan("x", "b/", after="a/1")] == ["b/1"]
    assert list(store.scan("x", "a/", after="b")) == []
    assert list(store.scan("x", limit=0)) == []
    assert list(store.scan("nothing")) == []


def test_a_scan_does_not_see_later_writes():
    store = DictStore()
    store.put("x", "a", {})
    store.put("x", "b", {})
    scan = store.scan("x")
    store.delete("x", "b")
    store.put("x", "c", {})
    assert [key for key, _ in scan] == ["a", "b"]
