"""state.db: applied exactly once, in step with its index, and rebuilt whenever it cannot be trusted."""

import shutil
from pathlib import Path
from typing import Any

import apsw
import msgpack
import pytest

from mesh.core.raft.entry import Entry, EntryKind
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.store import StateStore
from mesh.store import state_db
from mesh.store.errors import DirectoryRefused, DiskFull, LogDamaged
from mesh.store.feed import FeedFilter
from mesh.store.state_db import StateDb, open_state
from mesh.store.state_reader import QueryRefused, open_reader


def count(store: StateStore, idx: int, command: dict[str, Any]) -> Outcome:
    """Adds: applying an entry twice or not at all shows in the sum."""
    if command["t"] == "break":
        store.put("sum", "total", {"n": -1})
        raise ZeroDivisionError
    if command["t"] == "refuse":
        return refused("no", "no")
    row = store.get("sum", command["key"]) or {"n": 0}
    store.put("sum", command["key"], {"n": row["n"] + 1, "pad": command.get("pad", "")})
    store.put("log", f"{idx:06d}", {"key": command["key"]})
    return done(n=row["n"] + 1)


def entry(index: int, t: str = "add", key: str = "total", **more: Any) -> Entry:
    return Entry(index, 1, EntryKind.NORMAL, msgpack.packb({"t": t, "key": key, "at_ms": 1000 + index, **more}))


def entries(first: int, last: int) -> list[Entry]:
    return [entry(i, key=f"k{i % 7}") for i in range(first, last + 1)]


def opened(directory: Path, log_last: int = 1 << 40) -> StateDb:
    return open_state(directory / "state.db", "cluster-a", count, log_last, lambda index: 1)


def rows(path: Path) -> list[Any]:
    database = apsw.Connection(str(path))
    try:
        return [
            database.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("rows", "changes", "applied", "group_list")
        ]
    finally:
        database.close()


def test_outcomes_frames_and_index_come_back_together(tmp_path: Path) -> None:
    state = opened(tmp_path)
    batch = state.apply([Entry(1, 1), entry(2), entry(3, "refuse"), entry(4)])
    assert [(i, o.ok, o.code) for i, _, o in batch.outcomes] == [(2, True, ""), (3, False, "no"), (4, True, "")]
    assert [(f.index, [(c.entity, c.key) for c in f.changes]) for f in batch.frames] == [
        (2, [("sum", "total"), ("log", "000002")]),
        (4, [("sum", "total"), ("log", "000004")]),
    ]
    assert (state.index, state.term, state.stamp_ms) == (4, 1, 1004)
    state.close()
    again = opened(tmp_path)
    assert (again.index, again.term, again.stamp_ms, again.state_hash) == (4, 1, 1004, batch.state_hash)
    again.close()


def test_replay_after_a_kill_at_any_batch_gives_the_same_state(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = opened(tmp_path / "whole")
    whole.apply(entries(1, 60))
    whole.close()
    (tmp_path / "a").mkdir()
    state = opened(tmp_path / "a")
    for first in range(1, 60, 6):
        state.apply(entries(first, first + 5))
        copy = tmp_path / f"killed-{first}"
        shutil.copytree(tmp_path / "a", copy)
        survivor = opened(copy)
        survivor.apply(entries(survivor.index + 1, 60))
        assert survivor.state_hash == whole.state_hash
        survivor.close()
        assert rows(copy / "state.db") == rows(tmp_path / "whole" / "state.db")
        shutil.rmtree(copy)
    state.close()


def test_a_gap_is_never_applied(tmp_path: Path) -> None:
    state = opened(tmp_path)
    with pytest.raises(Exception, match="entry 2 after 0"):
        state.apply([entry(2)])


def test_a_reducer_that_breaks_changes_nothing_and_takes_nobody_down(tmp_path: Path) -> None:
    state = opened(tmp_path)
    before = state.apply([entry(1)]).state_hash
    batch = state.apply([entry(2, "break")])
    assert [(o.ok, o.code) for _, _, o in batch.outcomes] == [(False, "reducer_failed")]
    assert batch.frames == []
    assert batch.state_hash == before
    assert state.apply([entry(3)]).outcomes[0][2].data == {"n": 2}
    state.close()


def test_a_full_disk_applies_nothing_and_goes_on_later(tmp_path: Path) -> None:
    state = opened(tmp_path)
    before = state.apply([entry(1)]).state_hash
    connection: apsw.Connection = state._db
    connection.pragma("max_page_count", connection.pragma("page_count"))
    big = entry(2, pad="x" * 100_000)
    with pytest.raises(DiskFull):
        state.apply([big])
    assert (state.index, state.state_hash) == (1, before)
    connection.pragma("max_page_count", 1_000_000)
    assert state.apply([big]).outcomes[0][2].data == {"n": 2}
    state.close()


@pytest.mark.parametrize("damage", ["empty", "text", "flipped"])
def test_an_unusable_file_is_rebuilt_from_the_log(tmp_path: Path, damage: str) -> None:
    state = opened(tmp_path)
    expected = state.apply(entries(1, 50)).state_hash
    state.close()
    path = tmp_path / "state.db"
    content = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "text": b"not a database " * 1000, "flipped": content[:4096] + bytes(len(content) - 4096)}[
            damage
        ]
    )
    again = opened(tmp_path)
    assert again.index == 0
    assert again.apply(entries(1, 50)).state_hash == expected
    again.close()


def test_a_state_that_is_ahead_of_the_log_shows_that_the_log_lost_entries(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.apply(entries(1, 5))
    state.close()
    with pytest.raises(LogDamaged, match=r"log\.db, index 5: state\.db holds index 5"):
        opened(tmp_path, log_last=4)
    assert opened(tmp_path, log_last=5).index == 5


def test_another_cluster_and_a_newer_format_are_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(DirectoryRefused, match="belongs to mesh 'cluster-a'"):
        open_state(tmp_path / "state.db", "cluster-b", count, 0, lambda index: 0)
    database = apsw.Connection(str(tmp_path / "state.db"))
    database.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
    database.close()
    with pytest.raises(DirectoryRefused, match="newer version"):
        opened(tmp_path)


def test_the_feed_keeps_what_it_promises_and_drops_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_db, "FEED_INDEXES_KEPT", 100)
    monkeypatch.setattr(state_db, "PRUNE_SLACK", 10)
    monkeypatch.setattr(state_db, "PRUNE_CHUNK", 30)
    state = opened(tmp_path)
    state.apply(entries(1, 205))
    assert state.prune_feed()
    for _ in range(3):
        state.tidy()
    reader = open_reader(tmp_path / "state.db")
    assert reader.changes_after(104, 1000) is None
    found = reader.changes_after(105, 1000)
    assert found is not None and [f.index for f in found[1]] == list(range(106, 206))
    reader.close()
    state.close()


def test_the_feed_is_read_in_whole_frames(tmp_path: Path) -> None:
    state = opened(tmp_path)
    written = state.apply(entries(1, 20)).frames
    reader = open_reader(tmp_path / "state.db")
    position, read = 0, []
    while position < 20:
        found = reader.changes_after(position, 3)
        assert found is not None
        position, frames = found
        assert all(len(f.changes) == 2 for f in frames)
        read += frames
    assert read == written
    reader.close()
    state.close()


def test_a_query_is_of_one_moment_and_within_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = opened(tmp_path)
    state.apply(entries(1, 3000))
    reader = open_reader(tmp_path / "state.db")
    index, results = reader.query([{"get": ["sum", "k1"]}, {"scan": ["log", "", "", 2]}])
    assert (index, results[0]["n"], [key for key, _ in results[1]]) == (3000, 429, ["000001", "000002"])
    monkeypatch.setattr("mesh.store.state_reader.QUERY_BUDGET_S", 0.0)
    with pytest.raises(QueryRefused, match="longer than"):
        reader.query([{"groups": {"name": "x"}}, {"scan": ["log"]}])
    monkeypatch.undo()
    assert reader.query([{"get": ["sum", "k1"]}])[0] == 3000
    reader.close()
    state.close()


def test_an_answer_without_a_limit_is_whole_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = opened(tmp_path)
    state.apply(entries(1, 30))
    reader = open_reader(tmp_path / "state.db")
    assert len(reader.query([{"scan": ["log"]}])[1][0]) == 30
    monkeypatch.setattr("mesh.store.state_reader.ANSWER_BYTES", 100)
    with pytest.raises(QueryRefused, match="do not fit one answer") as refusal:
        reader.query([{"scan": ["log"]}])
    assert refusal.value.code == "answer_too_large"
    keys: list[str] = []
    while page := reader.query([{"scan": ["log", "", keys[-1] if keys else "", 20]}])[1][0]:
        assert len(page) < 20
        keys += [key for key, _ in page]
    assert keys == [f"{i:06d}" for i in range(1, 31)]
    reader.close()
    state.close()


MALFORMED: list[Any] = [
    [], [{}], [5], ["get"], [{"get": ["a"]}], [{"get": [1, 2]}], [{"get": ["a", "b"]}] * 65,
    [{"scan": []}], [{"scan": ["e", 1]}], [{"scan": ["e", "", "", 0]}],
    [{"groups": {"limit": True}}], [{"groups": {"status": 5}}], [{"groups": {"nam": "x"}}],
]  # fmt: skip


@pytest.mark.parametrize("reads", MALFORMED)
def test_malformed_queries_are_refused(tmp_path: Path, reads: list[Any]) -> None:
    opened(tmp_path).close()
    reader = open_reader(tmp_path / "state.db")
    with pytest.raises(QueryRefused):
        reader.query(reads)
    reader.close()


def test_a_snapshot_in_pieces_is_of_one_moment(tmp_path: Path) -> None:
    state = opened(tmp_path)
    reader = open_reader(tmp_path / "state.db")
    (empty,) = reader.snapshot(FeedFilter("all"), 1000)
    assert (empty.index, empty.rows, empty.more) == (0, [], False)
    state.apply(entries(1, 50))
    chunks = reader.snapshot(FeedFilter("all"), 500)
    pieces = [next(chunks)]
    state.apply(entries(51, 80))
    pieces += chunks
    assert len(pieces) > 5
    assert [p.more for p in pieces] == [True] * (len(pieces) - 1) + [False]
    assert {p.index for p in pieces} == {50}
    rows = [(entity, key) for p in pieces for entity, key, _ in p.rows]
    assert rows == sorted(rows)
    assert [key for entity, key in rows if entity == "log"] == [f"{i:06d}" for i in range(1, 51)]
    abandoned = reader.snapshot(FeedFilter("all"), 500)
    next(abandoned)
    abandoned.close()
    assert reader.query([{"get": ["log", "000080"]}])[0] == 80
    reader.close()
    state.close()


def listing(store: StateStore, idx: int, command: dict[str, Any]) -> Outcome:
    store.put(
        "group", command["key"], {"submit_idx": idx, "status": "pending", "name": "g", "tenant": command["tenant"]}
    )
    return done()


def test_groups_are_found_by_their_tenant_also_in_a_state_that_did_not_know_of_tenants(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    state = open_state(path, "cluster-a", listing, 1 << 40, lambda index: 1)
    state.apply([entry(i, key=f"g{i}", tenant=("red", "blue")[i % 2]) for i in range(1, 5)])
    state.close()
    database = apsw.Connection(str(path))
    database.execute("DROP INDEX group_list_tenant; ALTER TABLE group_list DROP COLUMN tenant")
    database.close()
    for _ in range(2):
        state = open_state(path, "cluster-a", listing, 1 << 40, lambda index: 1)
        reader = open_reader(path)
        reads = [{"groups": {"tenant": "red"}}, {"owned": ["blue", ["g1", "g2", "g3", "nope"]]}]
        groups, owned = reader.query(reads)[1]
        assert [row["submit_idx"] for row in groups["groups"]] == [4, 2] and sorted(owned) == ["g1", "g3"]
        (page,) = reader.query([{"groups": {"tenant": "red", "limit": 1}}])[1]
        (rest,) = reader.query([{"groups": {"tenant": "red", "after": page["next"]}}])[1]
        assert [row["submit_idx"] for row in page["groups"] + rest["groups"]] == [4, 2]
        for wrong in ({"owned": "blue"}, {"owned": ["blue"]}, {"owned": ["blue", [1]]}, {"groups": {"tenant": 3}}):
            with pytest.raises(QueryRefused):
                reader.query([wrong])
        reader.close()
        state.close()
        # A version without the column wrote here meanwhile: what it listed has no tenant.
        database = apsw.Connection(str(path))
        database.execute("UPDATE group_list SET tenant = NULL")
        database.close()
