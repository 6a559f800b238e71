"""The agent's side: what grew is read, once, and nothing else."""

import os
from pathlib import Path

import pytest

from agentd.telemetry import event_files
from agentd.telemetry.event_files import EventFiles
from tests.unit.tfevents.event_bytes import event, field, frame, scalar, summary, version

NAME = "events.out.tfevents.1.h.1.0"


def caught_up(files: EventFiles) -> EventFiles:
    for _ in range(10_000):
        if not files.turn():
            return files
    raise AssertionError("it never has enough")


def steps(files: EventFiles, tag: str = "loss", directory: str = "") -> list[int]:
    run = files.tree.runs.get(directory)
    return [point.step for point in run.curve(tag).points()] if run else []


def line(first: int, end: int, wall: float = 1.0, tag: str = "loss") -> bytes:
    return b"".join(scalar(tag, step, 0.5, wall + step) for step in range(first, end))


def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """`(bytes, offset)` of every read from here on."""
    seen: list[tuple[int, int]] = []
    pread = os.pread

    def watched(descriptor: int, size: int, offset: int) -> bytes:
        seen.append((size, offset))
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", watched)
    return seen


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_directory_that_comes_later(tmp_path: Path):
    files = EventFiles(str(tmp_path / "tb"))
    assert files.turn() is False
    (tmp_path / "tb").mkdir()
    assert files.turn() is False
    append(tmp_path / "tb" / NAME, version() + line(0, 3))
    assert steps(caught_up(files)) == [0, 1, 2]
    assert files.problems == {}


def test_only_what_grew_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    append(tmp_path / NAME, version() + line(0, 1000))
    files = caught_up(EventFiles(str(tmp_path)))
    read = reads(monkeypatch)
    files.turn()
    assert read == []
    size = (tmp_path / NAME).stat().st_size
    append(tmp_path / NAME, line(1000, 1010))
    assert len(steps(caught_up(files))) == 1010
    assert read == [(len(line(1000, 1010)), size)]


def test_a_turn_is_bounded_and_the_rest_follows(tmp_path: Path):
    one = line(0, 1000)
    append(tmp_path / NAME, one)
    files = EventFiles(str(tmp_path), turn_bytes=4096)
    assert files.turn() is True
    assert 0 < len(steps(files)) <= 4096 // 40
    assert len(steps(caught_up(files))) == 1000


def test_no_file_starves(tmp_path: Path):
    for at in range(4):
        append(tmp_path / f"events.out.tfevents.{at}.h.1.0", line(0, 500, tag=f"tag{at}"))
    files = EventFiles(str(tmp_path), turn_bytes=1000)
    for _ in range(8):
        files.turn()
    assert all(len(steps(files, f"tag{at}")) > 10 for at in range(4))


def test_a_record_larger_than_a_turn(tmp_path: Path):
    image = frame(event(summary(field(1, field(1, b"image") + field(4, bytes(100_000)))), 1))
    append(tmp_path / NAME, line(0, 2) + image + line(2, 4))
    assert steps(caught_up(EventFiles(str(tmp_path), turn_bytes=1000))) == [0, 1, 2, 3]


def test_half_a_large_record_is_not_read_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    image = frame(event(summary(field(1, field(1, b"image") + field(4, bytes(100_000)))), 1))
    append(tmp_path / NAME, line(0, 2) + image[:50_000])
    files = caught_up(EventFiles(str(tmp_path)))
    read = reads(monkeypatch)
    append(tmp_path / NAME, image[50_000:90_000])
    assert (files.turn(), read) == (False, [])
    append(tmp_path / NAME, image[90_000:] + line(2, 3))
    assert steps(caught_up(files)) == [0, 1, 2]
    assert len(read) == 1


def test_a_new_file_beside_a_live_one(tmp_path: Path):
    append(tmp_path / NAME, line(0, 10, 1.0))
    files = caught_up(EventFiles(str(tmp_path)))
    append(tmp_path / "events.out.tfevents.2.h.1.0", line(5, 8, 1000.0))
    append(tmp_path / NAME, line(0, 2, 1.0, "lr"))
    caught_up(files)
    assert steps(files) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert (files.tree.runs[""].curve("loss").superseded, steps(files, "lr")) == (5, [0, 1])


def test_a_file_in_the_same_clock_tick_is_found(tmp_path: Path):
    """The directory's time did not move between two files."""
    append(tmp_path / NAME, line(0, 2))
    before = tmp_path.stat()
    files = caught_up(EventFiles(str(tmp_path)))
    append(tmp_path / "events.out.tfevents.2.h.1.0", line(5, 8, 1000.0))
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert steps(caught_up(files)) == [0, 1, 5, 6, 7]


def test_a_replaced_file_is_read_from_its_beginning(tmp_path: Path):
    append(tmp_path / NAME, line(0, 50))
    files = caught_up(EventFiles(str(tmp_path)))
    append(tmp_path / "copy", line(0, 60))
    (tmp_path / "copy").replace(tmp_path / NAME)
    files.turn()
    assert steps(caught_up(files)) == list(range(60))
    assert files.tree.runs[""].curve("loss").superseded == 0


def test_a_shrunk_file_is_read_from_its_beginning(tmp_path: Path):
    append(tmp_path / NAME, line(0, 50))
    files = caught_up(EventFiles(str(tmp_path)))
    (tmp_path / NAME).write_bytes(line(100, 103))
    files.turn()
    assert steps(caught_up(files)) == [100, 101, 102]


def test_replacing_a_restart_gives_back_what_it_had_taken(tmp_path: Path):
    later = tmp_path / "events.out.tfevents.2.h.1.0"
    append(tmp_path / NAME, line(0, 10, 1.0))
    append(later, line(5, 9, 1000.0))
    files = caught_up(EventFiles(str(tmp_path)))
    append(tmp_path / "copy", line(8, 9, 1000.0))
    (tmp_path / "copy").replace(later)
    files.turn()
    assert steps(caught_up(files)) == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_what_was_read_of_a_file_that_is_gone_stays(tmp_path: Path):
    append(tmp_path / NAME, line(0, 3))
    files = caught_up(EventFiles(str(tmp_path)))
    (tmp_path / NAME).unlink()
    assert steps(caught_up(files)) == [0, 1, 2]
    assert files.problems == {}


def test_zeros_that_fill_up(tmp_path: Path):
    append(tmp_path / NAME, line(0, 3) + bytes(100))
    files = caught_up(EventFiles(str(tmp_path)))
    scan = files.tree.runs[""].files()[0].scan
    assert scan.unreadable is not None
    with (tmp_path / NAME).open("r+b") as file:
        file.seek(scan.offset)
        file.write(line(3, 20))
    assert steps(caught_up(files)) == list(range(20))


def test_an_unreadable_file_costs_twelve_bytes_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    append(tmp_path / NAME, line(0, 3) + b"\x01" * 40)
    files = caught_up(EventFiles(str(tmp_path)))
    read = reads(monkeypatch)
    append(tmp_path / NAME, bytes(100_000))
    caught_up(files)
    assert [size for size, _ in read] == [12]


def test_sub_runs_at_any_depth(tmp_path: Path):
    for below in ("train", "validation", "a/b/c"):
        (tmp_path / below).mkdir(parents=True)
        append(tmp_path / below / NAME, line(0, 2))
    files = caught_up(EventFiles(str(tmp_path)))
    assert sorted(item.name for item in files.tree.curves()) == ["a/b/c/loss", "train/loss", "validation/loss"]


def test_what_is_no_event_file_is_left_alone(tmp_path: Path):
    (tmp_path / "latest").symlink_to(tmp_path / "gone")
    (tmp_path / "events.out.tfevents.9.h.1.0").symlink_to(tmp_path / "gone")
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "x.pt").write_bytes(bytes(1000))
    (tmp_path / "events.out.tfevents.1.profile-empty").write_bytes(b"")
    os.mkfifo(tmp_path / "events.out.tfevents.5.h.1.0")
    append(tmp_path / NAME, line(0, 2))
    files = caught_up(EventFiles(str(tmp_path)))
    assert steps(files) == [0, 1]
    assert list(files.problems.values()) == ["is no regular file"]
    assert list(files.tree.runs) == [""]


def test_bounds_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_files, "MOST_FILES", 2)
    monkeypatch.setattr(event_files, "MOST_DIRECTORIES", 2)
    monkeypatch.setattr(event_files, "MOST_DEPTH", 1)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    for at in range(4):
        append(tmp_path / f"events.out.tfevents.{at}.h.1.0", line(0, 2))
    files = caught_up(EventFiles(str(tmp_path)))
    assert len(files.tree.runs[""].files()) == 2
    assert any("more than 2" in text for text in files.problems.values())


def test_no_file_stays_open(tmp_path: Path):
    for at in range(20):
        append(tmp_path / f"events.out.tfevents.{at}.h.1.0", line(0, 2))
    before = len(os.listdir("/proc/self/fd"))
    files = caught_up(EventFiles(str(tmp_path)))
    assert len(os.listdir("/proc/self/fd")) == before
    assert files.problems == {}
