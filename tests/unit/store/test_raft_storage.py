"""The cached log gives the core exactly what a log in memory would."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.raft.entry import Entry, EntryKind, HardState
from mesh.core.raft.errors import UnavailableError
from mesh.core.raft.storage import MemoryStorage
from mesh.store import raft_storage
from mesh.store.raft_storage import RaftStorage

WRITES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(0, 2), st.integers(0, 40)), max_size=25)


@settings(max_examples=150, deadline=None)
@given(WRITES, st.integers(0, 60), st.integers(0, 60), st.integers(1, 200))
def test_it_reads_like_a_log_in_memory(
    writes: list[tuple[int, int, int, int]], lo: int, length: int, max_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raft_storage, "CACHE_ENTRIES", 8)
        patch.setattr(raft_storage, "CACHE_BYTES", 120)
        model = MemoryStorage((1, 2, 3))
        storage = RaftStorage(HardState(), (1, 2, 3), [], 0, [], model.entries)
        term = 1
        for back, count, term_up, size in writes:
            term += term_up
            first = max(1, model.last_index() + 1 - (back if term_up else 0))
            entries = [Entry(first + i, term, EntryKind.NORMAL, b"x" * size) for i in range(count)]
            model.append(entries)
            storage.persisted(entries)
            assert storage.last_index() == model.last_index()
        last = model.last_index()
        assert [storage.term(i) for i in range(last + 1)] == [model.term(i) for i in range(last + 1)]
        lo = min(max(lo, 1), last + 1)
        hi = min(lo + length, last + 1)
        if lo < hi:
            assert storage.entries(lo, hi, max_bytes) == model.entries(lo, hi, max_bytes)
        assert len(storage._recent) <= 8
        assert storage._bytes == sum(len(e.data) for e in storage._recent)
        with pytest.raises(UnavailableError):
            storage.term(last + 1)


def test_only_what_left_the_memory_is_loaded_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_storage, "CACHE_ENTRIES", 10)
    loads: list[Any] = []

    def load(lo: int, hi: int, max_bytes: int) -> list[Entry]:
        loads.append((lo, hi))
        return [Entry(i, 1) for i in range(lo, hi)]

    storage = RaftStorage(HardState(), (1,), [], 0, [], load)
    for index in range(1, 101):
        storage.persisted([Entry(index, 1)])
    assert [e.index for e in storage.entries(97, 101, 1 << 30)] == [97, 98, 99, 100]
    assert loads == []
    assert [e.index for e in storage.entries(5, 8, 1 << 30)] == [5, 6, 7]
    assert loads == [(5, 8)]
