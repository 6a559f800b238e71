"""The log against a plain list, and the storage's edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.raft import NO_LIMIT, CompactedError, Entry, InvariantViolation, MemoryStorage, UnavailableError
from mesh.core.raft.entry import entry_bytes, limit_size
from mesh.core.raft.log import RaftLog


def entries(first: int, terms: list[int]) -> list[Entry]:
    return [Entry(first + i, t, data=b"%d" % t) for i, t in enumerate(terms)]


def make(stable: list[int], commit: int = 0, applied: int = 0) -> RaftLog:
    storage = MemoryStorage([1])
    storage.append(entries(1, stable))
    return RaftLog(storage, commit, applied, False, NO_LIMIT)


def terms_of(log: RaftLog) -> list[int]:
    return [e.term for e in log.all_entries()]


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, list[int]]]:
    """Appends at random places with rising terms, and writes of all or a part of the tail."""
    result: list[tuple[str, int, list[int]]] = []
    for term in range(1, draw(st.integers(1, 8)) + 1):
        result.append(("append", draw(st.integers(0, 12)), [term] * draw(st.integers(1, 4))))
        if draw(st.booleans()):
            result.append(("write", draw(st.integers(0, 4)), []))
    return result


@given(steps())
def test_behaves_like_a_list(plan: list[tuple[str, int, list[int]]]) -> None:
    log, model = make([]), list[int]()
    for what, number, terms in plan:
        if what == "append":
            at = min(number, len(model))
            log.append(entries(at + 1, terms))
            model[at:] = terms
        else:
            written = log.unstable[: len(log.unstable) - number]
            log.storage.append(written)  # type: ignore[attr-defined]  # of the one in memory
            if written:
                log.stable_to(written[-1].index, written[-1].term)
        assert terms_of(log) == model
        assert log.last_index() == len(model)
        assert log.last_term() == (model[-1] if model else 0)
        assert [log.term(i) for i in range(1, len(model) + 1)] == model
        assert log.term(len(model) + 1) == 0
        assert [e.index for e in log.unstable] == list(range(log.offset, len(model) + 1))


@given(st.lists(st.integers(1, 4), max_size=9).map(sorted), st.integers(0, 12), st.integers(0, 5))
def test_conflict_point_is_the_last_place_that_could_agree(terms: list[int], index: int, term: int) -> None:
    log = make(terms)
    at, its_term = log.conflict_point(index, term)
    below = [0] + [i for i, t in enumerate(terms, 1) if t <= term and i <= index]
    assert (at, its_term) == (below[-1], ([0, *terms])[below[-1]])


def test_a_replaced_write_does_not_count() -> None:
    """The tail was being written when a new leader replaced it."""
    log = make([1])
    log.append(entries(2, [1, 1]))
    log.append(entries(2, [2]))
    log.stable_to(3, 1)
    assert log.stable_index() == 1
    log.stable_to(2, 1)
    assert log.stable_index() == 1
    log.stable_to(2, 2)
    assert log.stable_index() == 2


def test_committed_entries_are_never_overwritten() -> None:
    log = make([1, 1], commit=2)
    with pytest.raises(InvariantViolation, match="overwrite committed entries up to 2"):
        log.maybe_append(1, 1, 2, entries(2, [2]))
    assert terms_of(log) == [1, 1]


def test_repeated_append_does_not_shorten() -> None:
    log = make([1, 1, 1])
    assert log.maybe_append(1, 1, 0, entries(2, [1])) == 2
    assert log.last_index() == 3
    assert log.maybe_append(0, 0, 9, entries(1, [1, 1])) == 2
    assert log.committed == 2, "commit goes only as far as the append vouches for"


def test_lost_tail_is_noticed() -> None:
    with pytest.raises(InvariantViolation, match="must not vote"):
        make([1], applied=2)
    log = make([1])
    with pytest.raises(InvariantViolation, match="must not vote"):
        log.commit_to(2)


def test_applied_stays_in_range() -> None:
    log = make([1, 1], commit=1)
    with pytest.raises(InvariantViolation, match="applied 2"):
        log.applied_to(2)


def test_a_storage_that_saves_no_commit() -> None:
    assert make([1, 1], commit=0, applied=2).committed == 2


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 100))
def test_limit_keeps_at_least_one(sizes: list[int], limit: int) -> None:
    some = [Entry(i, 1, data=b"x" * n) for i, n in enumerate(sizes, 1)]
    got = limit_size(some, limit)
    assert got == some[: len(got)]
    assert got
    assert len(got) == 1 or sum(map(entry_bytes, got)) <= limit
    if len(got) < len(some):
        assert sum(map(entry_bytes, some[: len(got) + 1])) > limit


def test_storage_edges() -> None:
    storage = MemoryStorage([1])
    storage.append(entries(1, [1, 1, 2, 2]))
    storage.compact(2)
    assert (storage.first_index(), storage.last_index(), storage.term(2)) == (3, 4, 1)
    with pytest.raises(CompactedError):
        storage.term(1)
    with pytest.raises(CompactedError):
        storage.entries(2, 4)
    with pytest.raises(UnavailableError):
        storage.term(5)
    with pytest.raises(UnavailableError):
        storage.entries(3, 6)
    with pytest.raises(CompactedError):
        storage.compact(2)
    with pytest.raises(InvariantViolation, match="gap"):
        storage.append(entries(6, [3]))
    storage.append(entries(4, [3]))
    assert [e.term for e in storage.entries(3, 5)] == [2, 3]


def test_slice_over_both_parts() -> None:
    log = make([1, 1, 1])
    log.append(entries(4, [2, 2]))
    assert [e.index for e in log.slice(2, 6, NO_LIMIT)] == [2, 3, 4, 5]
    assert [e.index for e in log.slice(2, 6, 27)] == [2, 3, 4]
    assert [e.index for e in log.slice(2, 6, 10)] == [2]
    assert log.slice(3, 3, NO_LIMIT) == []
