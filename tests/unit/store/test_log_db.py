"""log.db: what is written is there, and what is not as it was written is never served."""

import shutil
from pathlib import Path

import apsw
import pytest

from mesh.core.raft.entry import Entry, EntryKind, HardState
from mesh.store.errors import DirectoryRefused, DiskFull, LogDamaged
from mesh.store.log_db import LogDb
from mesh.store.open_log import Identity, open_log

ME = Identity("cluster-a", 7)


def entry(index: int, term: int = 1, data: bytes | None = None) -> Entry:
    return Entry(index, term, EntryKind.NORMAL, data if data is not None else b"command %d of term %d" % (index, term))


def reopened(directory: Path) -> tuple[int, HardState, list[Entry]]:
    log, _ = open_log(directory, ME)
    try:
        return log.last_index, log.hard_state, log.entries(1, log.last_index + 1, 1 << 40)
    finally:
        log.close()


def filled(directory: Path, count: int = 20, term: int = 1) -> LogDb:
    log, tail = open_log(directory, ME)
    assert tail == []
    for index in range(1, count + 1):
        log.write([entry(index, term)], HardState(term, 7, index - 1))
    return log


def crashed(source: Path, target: Path) -> Path:
    """The files as a killed process leaves them."""
    shutil.copytree(source, target)
    return target


def test_written_entries_and_hard_state_survive_a_clean_stop(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    assert reopened(tmp_path) == (5, HardState(1, 7, 4), [entry(i) for i in range(1, 6)])


def test_written_entries_survive_a_kill(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    log = filled(tmp_path / "a", 5)
    copy = crashed(tmp_path / "a", tmp_path / "b")
    log.close()
    assert reopened(copy)[0] == 5


def test_a_new_suffix_replaces_the_old_one_in_the_same_write(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    log.sync_mark()
    log.write([entry(6, 2), entry(7, 2)], HardState(2, 3, 5))
    log.close()
    last, hard, entries = reopened(tmp_path)
    assert (last, hard) == (7, HardState(2, 3, 5))
    assert entries == [*(entry(i) for i in range(1, 6)), entry(6, 2), entry(7, 2)]


def test_a_crash_right_after_a_truncation_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    log = filled(tmp_path / "a", 10)
    log.sync_mark()
    log.write([entry(4, 2)], HardState(2, 0, 3))
    copy = crashed(tmp_path / "a", tmp_path / "b")
    log.close()
    assert reopened(copy)[0] == 4


def test_terms_are_known_for_every_index(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    log.write([entry(4, 3), entry(5, 3)], HardState(3, 0, 0))
    log.write([entry(5, 4)], HardState(4, 0, 0))
    assert [log.terms.term(i) for i in range(7)] == [0, 1, 1, 1, 3, 4, 4]
    log.close()


def test_the_tail_of_an_unfinished_write_is_dropped_whatever_is_left_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut inside the last transaction: at every length of it the log starts with the earlier records."""
    (tmp_path / "a").mkdir()
    log = filled(tmp_path / "a", 19)
    wal = tmp_path / "a" / "log.db-wal"
    before = wal.stat().st_size
    log.write([entry(20)], HardState(1, 7, 19))
    after = wal.stat().st_size
    whole = crashed(tmp_path / "a", tmp_path / "whole")
    log.close()
    assert after - before > 4096
    expected = [entry(i) for i in range(1, 20)]
    cut = tmp_path / "cut"
    # Every offset near the borders of frames and headers, and a comb over the page contents.
    offsets = sorted({*range(before, before + 64), *range(before, after, 97), *range(after - 64, after)})
    for size in offsets:
        shutil.copytree(whole, cut)
        with (cut / "log.db-wal").open("r+b") as file:
            file.truncate(size)
        caplog.clear()
        assert reopened(cut)[2] == expected, f"WAL cut at {size}"
        if size > before:
            assert f"dropped {size - before} bytes at offset {before}" in caplog.text
            torn = (whole / "log.db-wal").read_bytes()[before:size]
            assert (cut / "log.db-torn").read_bytes() == torn, "what is dropped is kept aside"
        shutil.rmtree(cut)


def test_a_torn_tail_that_cannot_be_kept_aside_keeps_nobody_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").mkdir()
    log = filled(tmp_path / "a", 19)
    log.write([entry(20)], HardState(1, 7, 19))
    copy = crashed(tmp_path / "a", tmp_path / "b")
    log.close()
    with (copy / "log.db-wal").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 100)
    (copy / "log.db-torn").mkdir()
    assert reopened(copy)[0] == 19
    assert "a copy could not be kept" in caplog.text


def test_a_log_shorter_than_what_was_acknowledged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    log = filled(tmp_path / "a", 20)
    log.sync_mark()
    copy = crashed(tmp_path / "a", tmp_path / "b")
    log.close()
    with (copy / "log.db-wal").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 100)
    with pytest.raises(LogDamaged, match=r"log\.db, index 20: it ends at index 19.*must not vote.*--join"):
        open_log(copy, ME)


def test_a_flipped_bit_anywhere_is_refused_or_harmless(tmp_path: Path) -> None:
    """After each flip the log either refuses to open or holds exactly what was written."""
    (tmp_path / "a").mkdir()
    filled(tmp_path / "a", 20).close()
    path = tmp_path / "a" / "log.db"
    expected = reopened(tmp_path / "a")
    good = path.read_bytes()
    refused = 0
    for at in range(0, len(good), 61):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        try:
            assert reopened(tmp_path / "a") == expected, f"flip at {at} went unseen"
        except (LogDamaged, DirectoryRefused):
            refused += 1
        for name in ("log.db-wal", "log.db-shm"):
            (tmp_path / "a" / name).unlink(missing_ok=True)
    assert refused > 10


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE log SET data = x'00' WHERE idx = 5", "chain breaks at index 5"),
        ("UPDATE log SET term = 2 WHERE idx = 5", "chain breaks at index 5"),
        ("DELETE FROM log WHERE idx = 5", "chain breaks at index 5"),
        ("DELETE FROM log WHERE idx = 1", "chain breaks at index 1"),
        ("UPDATE hard_state SET vote = 3", "term and vote"),
        ("DELETE FROM log WHERE idx = 10", "ends at index 9"),
    ],
)
def test_changed_records_are_refused(tmp_path: Path, sql: str, what: str) -> None:
    filled(tmp_path, 10).close()
    with apsw.Connection(str(tmp_path / "log.db")) as database:
        database.execute(sql)
    database.close()
    with pytest.raises(LogDamaged, match=what):
        open_log(tmp_path, ME)


@pytest.mark.parametrize("present", ["hwm", "state.db"])
@pytest.mark.parametrize("log", ["empty", "missing"])
def test_an_empty_log_beside_other_files_is_never_a_fresh_start(tmp_path: Path, present: str, log: str) -> None:
    filled(tmp_path, 3).close()
    (tmp_path / "state.db").write_bytes(b"something")
    for name in {"hwm", "state.db"} - {present}:
        (tmp_path / name).unlink()
    (tmp_path / "log.db").unlink()
    if log == "empty":
        (tmp_path / "log.db").touch()
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(LogDamaged, match=f"it is {log}, but {present}"):
        open_log(tmp_path, ME)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"HWM1", b"x" * 24, b"HWM1" + bytes(20) + b"more"])
def test_a_broken_mark_is_refused(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path, 3).close()
    (tmp_path / "hwm").write_bytes(content)
    with pytest.raises(LogDamaged, match=r"hwm: the "):
        open_log(tmp_path, ME)


def test_another_cluster_and_another_voter_are_refused(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    with pytest.raises(DirectoryRefused, match="belongs to cluster_id 'cluster-a', not to 'cluster-b'"):
        open_log(tmp_path, Identity("cluster-b", 7))
    with pytest.raises(DirectoryRefused, match="belongs to raft_id '7', not to '8'"):
        open_log(tmp_path, Identity("cluster-a", 8))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    database = apsw.Connection(str(tmp_path / "log.db"))
    database.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
    database.close()
    with pytest.raises(DirectoryRefused, match=r"newer version \(format 99"):
        open_log(tmp_path, ME)


def test_an_open_log_is_refused(tmp_path: Path) -> None:
    log = filled(tmp_path, 1)
    with pytest.raises(DirectoryRefused, match="open in another process"):
        open_log(tmp_path, ME)
    log.close()


def test_a_full_disk_stores_nothing_of_the_write_and_the_next_write_goes_on(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    connection: apsw.Connection = log._db
    pages = connection.pragma("page_count")
    connection.pragma("max_page_count", pages)
    big = [entry(4, data=b"x" * 100_000)]
    with pytest.raises(DiskFull):
        log.write(big, HardState(9, 9, 3))
    assert (log.last_index, log.hard_state) == (3, HardState(1, 7, 2))
    connection.pragma("max_page_count", 1_000_000)
    log.write(big, HardState(2, 0, 3))
    log.close()
    last, hard, entries = reopened(tmp_path)
    assert (last, hard, entries[-1]) == (4, HardState(2, 0, 3), big[0])


def test_a_full_disk_during_a_truncating_write_keeps_the_old_suffix(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    connection: apsw.Connection = log._db
    connection.pragma("max_page_count", connection.pragma("page_count"))
    with pytest.raises(DiskFull):
        log.write([entry(3, 2, b"x" * 100_000)], HardState(2, 0, 2))
    assert [e.term for e in log.entries(1, 6, 1 << 40)] == [1] * 5
    connection.pragma("max_page_count", 1_000_000)
    log.write([entry(6)], None)
    log.close()
    assert reopened(tmp_path)[0] == 6


def test_letting_go_writes_nothing_more(tmp_path: Path) -> None:
    """After a failed fsync even closing must not sync: what is in the WAL stays there, the mark stays where it was."""
    log = filled(tmp_path, 5)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    log.abandon()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert reopened(tmp_path)[0] == 5


def test_reading_a_range_gives_at_least_one_and_stays_within_the_bytes(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    assert [e.index for e in log.entries(3, 8, 1)] == [3]
    assert [e.index for e in log.entries(3, 8, 1 << 20)] == [3, 4, 5, 6, 7]
    log.close()
