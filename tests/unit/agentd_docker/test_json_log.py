"""The engine's log files read by place: rotated, cut, damaged, half written."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentd.shim.json_log import JsonLog, Record


def record(text: str, stream: str = "stdout", second: int = 0, ms: int = 693) -> bytes:
    stamp = f"2026-11-29T15:48:{second:02d}.{ms:03}000001Z"
    return json.dumps({"log": text, "stream": stream, "time": stamp}).encode() + b"\n"


def append(path: Path, *records: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(records))


def rotate(path: Path, files: int = 4) -> None:
    for number in range(files - 1, 0, -1):
        older = Path(f"{path}.{number}")
        if older.exists() and number == files - 1:
            older.unlink()
        elif older.exists():
            older.rename(f"{path}.{number + 1}")
    path.rename(f"{path}.1")
    path.touch()


def read(log: JsonLog) -> list[Record]:
    found: list[Record] = []
    while records := log.read():
        found += records
    return found + log.finish()


def texts(log: JsonLog) -> list[str]:
    """Of what is missing, [bytes]."""
    return [one.data.decode() if one.stream else f"[{one.lost}]" for one in read(log)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c-json.log"


def test_a_log_that_is_not_there_yet_is_waited_for(path: Path) -> None:
    log = JsonLog(str(path), 4, 1000)
    assert log.read() == []
    append(path, record("a\n"))
    assert texts(log) == ["a\n"]
    log.close()


def test_stream_and_time_are_those_of_the_record(path: Path) -> None:
    append(path, record("a\n", "stderr"))
    log = JsonLog(str(path), 4, 1000)
    (one,) = log.read()
    assert (one.stream, one.at_ns % 1_000_000_000, one.at_ns // 1_000_000_000) == (2, 693_000_001, 1795967280)
    log.close()


def test_rounds_within_one_second_and_one_moment_repeat_nothing(path: Path) -> None:
    """A reader that remembers a time, cut to seconds or not, shows some of these twice or not at all."""
    times = [(30, 693), (30, 996), (31, 296), (31, 600), (31, 600), (31, 899)]
    log = JsonLog(str(path), 4, 1000)
    for number, (second, ms) in enumerate(times):
        append(path, record(f"line{number}\n", second=second, ms=ms))
        if number % 2:
            assert texts(log) == [f"line{number - 1}\n", f"line{number}\n"]
    assert texts(log) == []
    log.close()


def test_half_a_record_is_waited_for(path: Path) -> None:
    whole = record("line\n")
    append(path, whole[:20])
    log = JsonLog(str(path), 4, 1000)
    assert log.read() == []
    append(path, whole[20:])
    assert texts(log) == ["line\n"]
    log.close()


def test_pieces_of_a_long_line_are_what_was_written(path: Path) -> None:
    append(path, record("x" * 16384), record("y" * 10), record("end\n"))
    log = JsonLog(str(path), 4, 1000)
    assert "".join(texts(log)) == "x" * 16384 + "y" * 10 + "end\n"
    log.close()


@pytest.mark.parametrize("rotations", [1, 2, 3, 4])
def test_nothing_is_lost_over_rotations_that_keep_the_file_being_read(path: Path, rotations: int) -> None:
    append(path, record("0\n"))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["0\n"]
    append(path, record("late\n"))
    for number in range(rotations):
        rotate(path)
        append(path, record(f"{number}\n"))
    assert texts(log) == ["late\n", *(f"{number}\n" for number in range(rotations))]
    log.close()


def outrun(path: Path, first: int, rotations: int) -> None:
    for number in range(first, first + rotations):
        rotate(path)
        append(path, record(f"{number}\n", second=number))


@pytest.mark.parametrize("rotations", [5, 6, 9, 30])
def test_what_rotation_took_unread_is_counted_and_said_in_its_place(path: Path, rotations: int) -> None:
    append(path, record("0\n"))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["0\n"]
    append(path, record("late\n", second=1))
    outrun(path, 2, rotations)
    last = rotations + 1
    kept = [f"{number}\n" for number in range(last - 3, last + 1)]
    late, gap, *after = read(log)
    assert (late.data, gap.stream, gap.lost) == (b"late\n", 0, 1000 * (rotations - 4))
    assert gap.data.decode() == (
        f"at least {gap.lost} bytes lost to rotation between 2026-11-29T15:48:01.693Z and "
        f"2026-11-29T15:48:{last - 3:02}.693Z: the engine rotated its log faster than it was read"
    )
    assert [one.data.decode() for one in after] == kept
    # And from there on nothing is lost, and nothing is called lost.
    outrun(path, last + 1, 3)
    assert texts(log) == [f"{number}\n" for number in range(last + 1, last + 4)]
    log.close()


def test_a_second_loss_is_counted_by_itself(path: Path) -> None:
    append(path, record("0\n"))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["0\n"]
    outrun(path, 1, 7)
    assert texts(log) == ["[3000]", "4\n", "5\n", "6\n", "7\n"]
    outrun(path, 8, 6)
    assert texts(log) == ["[2000]", "10\n", "11\n", "12\n", "13\n"]
    log.close()


def test_a_loss_that_the_kernel_did_not_count_is_said_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a host has no inotify watch left."""
    append(path, record("0\n", second=7))
    monkeypatch.setattr("agentd.shim.rotations._libc", SimpleNamespace(inotify_init1=lambda _: -1))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["0\n"]
    outrun(path, 8, 7)
    gap, *after = read(log)
    assert gap.stream == 0
    assert gap.data.startswith(b"output between 2026-11-29T15:48:07.693Z and 2026-11-29T15:48:11.693Z may be lost")
    assert [one.data for one in after] == [b"11\n", b"12\n", b"13\n", b"14\n"]
    log.close()


def test_a_log_whose_beginning_may_be_gone_says_so(path: Path) -> None:
    append(path, record("0\n"))
    outrun(path, 1, 7)
    log = JsonLog(str(path), 4, 1000)
    first, *after = read(log)
    assert first.data == b"output before 2026-11-29T15:48:04.693Z may be lost to rotation"
    assert [one.data for one in after] == [b"4\n", b"5\n", b"6\n", b"7\n"]
    log.close()


def test_a_file_that_was_cut_from_outside_is_said_and_read_on(path: Path) -> None:
    append(path, record("a\n"), record("b\n"))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["a\n", "b\n"]
    path.write_bytes(b"")
    assert log.read() == []
    append(path, record("c\n"))
    cut, after = read(log)
    assert b"cut from outside" in cut.data
    assert (cut.stream, after.data) == (0, b"c\n")
    path.write_bytes(b"")
    assert b"cut from outside" in read(log)[0].data
    log.close()


@pytest.mark.parametrize("damage", [b"{\n", b"null\n", b"\x00\x00\n", b'{"log": 1, "stream": "stdout", "time": ""}\n'])
def test_a_damaged_record_costs_itself_alone(path: Path, damage: bytes) -> None:
    append(path, record("a\n"), damage, record("b\n"))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["a\n", f"[{len(damage) - 1}]", "b\n"]
    log.close()


def test_a_record_that_the_engine_s_death_cut_does_not_cost_the_next_one_on_its_line(path: Path) -> None:
    """As `kill -9` of an engine leaves it: the next engine writes on behind the half record."""
    half = record("b\n")[:50]
    append(path, record("a\n"), half, record('{"log":"c"}\n'))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["a\n", "[50]", '{"log":"c"}\n']
    append(path, half, half, record("d\n"))
    assert texts(log) == ["[100]", "d\n"]
    log.close()


def test_half_a_record_at_the_end_of_a_file_is_said(path: Path) -> None:
    append(path, record("a\n"), record("b\n")[:30])
    log = JsonLog(str(path), 4, 1000)
    assert [one.data for one in log.read()] == [b"a\n"]
    rotate(path)
    append(path, record("c\n"), record("d\n")[:40])
    assert texts(log) == ["[30]", "c\n", "[40]"]
    log.close()


def test_the_hole_that_a_cut_leaves_before_an_engine_that_writes_on_at_its_place_is_no_loss(path: Path) -> None:
    append(path, record("a\n"))
    log = JsonLog(str(path), 4, 1000)
    assert texts(log) == ["a\n"]
    path.write_bytes(b"")
    assert log.read() == []
    path.write_bytes(b"\0" * 3_000_000 + record("b\n"))
    cut, after = read(log)
    assert b"cut from outside" in cut.data
    assert (cut.lost, after.data) == (0, b"b\n")
    log.close()


FILES = 8


class Engine:
    """Writes numbered records and rotates in its single steps, one a call of `step`. Killed at any of them, it leaves
    half a record, or files half renamed."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self.chance = path, chance
        self.written: list[str] = []
        self.halves = 0
        self.over = False
        self._glued = False
        self._work = self._works()

    def step(self) -> None:
        self.over = next(self._work, "over") == "over"

    def _works(self) -> Iterator[None]:
        path, chance = self.path, self.chance
        while not Path(f"{path}.{FILES - 1}").exists():
            for _ in range(chance.randrange(1, 4)):
                text = f"{len(self.written)}\n"
                if chance.random() < 0.15:
                    append(path, record("half\n")[: chance.randrange(20, 60)])
                    self.halves += not self._glued
                    self._glued = True
                    yield
                append(path, record(text))
                self._glued = False
                self.written.append(text)
                yield
            younger = sorted((int(file.suffix[1:]) for file in path.parent.glob("*.log.*")), reverse=True)
            killed = chance.random() < 0.3
            for number in younger:
                Path(f"{path}.{number}").rename(f"{path}.{number + 1}")
                yield
                if killed and chance.random() < 0.5:
                    break
            else:
                path.rename(f"{path}.1")
                yield
                path.touch()
                yield


@pytest.mark.parametrize("seed", range(150))
def test_whatever_the_engine_does_between_two_calls_of_the_reader_each_record_is_read_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also killed within a rotation or a record. Nothing is outrun here: no file is ever removed."""
    chance = random.Random(seed)
    engine = Engine(path, chance)

    class Calls:
        """`os`, as the reader calls it: before each call the engine may do some steps."""

        def __getattr__(self, name: str) -> Any:
            if name in ("read", "open", "stat", "fstat"):
                for _ in range(chance.choice((1, 2, 5)) if chance.random() < 0.15 else 0):
                    engine.step()
            return getattr(os, name)

    log = JsonLog(str(path), FILES, 1000)
    engine.step()
    found = log.read()
    with monkeypatch.context() as patched:
        patched.setattr("agentd.shim.json_log.os", Calls())
        while not engine.over:
            found += log.read()
    found += read(log)
    assert [one.data.decode() for one in found if one.stream] == engine.written, f"seed {seed}"
    assert sum(not one.stream for one in found) == engine.halves, f"seed {seed}"
    log.close()
