"""Writer and reader over real files: rotation, restarts, tails, full disks, damage."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentd.core.frames import ERR, FRAME_BYTES, OUT, PLATFORM, SEGMENT_BYTES, segment_base
from agentd.core.log_window import Line
from agentd.logs.reader import Dropped, LogReader
from agentd.logs.writer import LogWriter
from tests.log_lines import read_log, texts


def segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if segment_base(path.name) is not None)


def read_all(reader: LogReader, limit: int = 4096) -> list[Line | Dropped]:
    items: list[Line | Dropped] = []
    while batch := reader.read(limit):
        items += batch
    return items


def text_of(items: list[Line | Dropped]) -> list[str]:
    return [item.text for item in items if isinstance(item, Line)]


CHUNKS = st.lists(
    st.tuples(st.sampled_from([OUT, ERR]), st.integers(1, 40), st.booleans(), st.booleans()), min_size=1, max_size=60
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHUNKS, st.integers(60, 600), st.data())
def test_every_line_once_in_order_over_chunks_rotation_and_reader_restarts(
    tmp_path: Path, chunks: list[tuple[int, int, bool, bool]], max_bytes: int, data: st.DataObject
) -> None:
    """Readers come and go, know only the offset of the last line that they gave, and together give every line."""
    directory = tmp_path / os.urandom(8).hex()
    writer = LogWriter(str(directory), max_bytes, files=10_000)
    written = {OUT: b"", ERR: b""}
    got: list[Line] = []
    reader = LogReader(str(directory))
    for number, (stream, length, ended, restart) in enumerate(chunks):
        payload = f"{number}:".encode().ljust(length, b".") + (b"\n" if ended else b"")
        writer.append(stream, payload, number)
        written[stream] += payload
        if restart:
            reader.close()
            reader = LogReader(str(directory))
            reader.seek(got[-1].offset if got else 0)
        for item in reader.read(data.draw(st.integers(1, 5))):
            assert isinstance(item, Line)
            got.append(item)
    for item in read_all(reader) + reader.finish():
        assert isinstance(item, Line)
        got.append(item)
    reader.close()
    writer.close()
    offsets = [line.offset for line in got]
    assert offsets == sorted(set(offsets))
    for stream in (OUT, ERR):
        assert "".join(line.text + line.end for line in got if line.stream == stream).encode() == written[stream]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHUNKS, st.integers(60, 600), st.integers(1, 20))
def test_a_tail_is_the_end_of_the_whole(
    tmp_path: Path, chunks: list[tuple[int, int, bool, bool]], max_bytes: int, wanted: int
) -> None:
    directory = tmp_path / os.urandom(8).hex()
    writer = LogWriter(str(directory), max_bytes, files=10_000)
    for number, (stream, length, ended, _) in enumerate(chunks):
        writer.append(stream, f"{number}:".encode().ljust(length, b".") + (b"\n" if ended else b""), number)
    whole, tail = LogReader(str(directory)), LogReader(str(directory))
    assert tail.tail(wanted) == read_all(whole)[-wanted:]
    assert tail.finish() == whole.finish()
    for reader in (whole, tail):
        reader.close()
    writer.close()


def test_a_tail_leaves_out_overwritten_progress_and_reading_goes_on_behind_it(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    writer.append(OUT, b"start\n" + b"".join(b"%d%%\r" % n for n in range(100)) + b"100%\n", 1)
    writer.append(OUT, b"1/9\r2/9\r3/9", 2)
    reader = LogReader(str(tmp_path))
    assert [line.text for line in reader.tail(3)] == ["start", "100%", "2/9"]
    writer.append(OUT, b"\nnext\n", 3)
    assert text_of(reader.read()) == ["3/9", "next"]
    reader.close()
    writer.close()


def test_the_last_line_of_a_tail_is_where_a_reader_goes_on(tmp_path: Path) -> None:
    """Also where the other stream shows progress that is older than the last line."""
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    writer.append(ERR, b"1/9\r2/9\r", 1)
    writer.append(ERR, b"3/9", 1)
    for number in range(5):
        writer.append(OUT, b"step %d\n" % number, 2)
    reader = LogReader(str(tmp_path))
    tail = reader.tail(4)
    assert [line.text for line in tail] == ["step 1", "step 2", "step 3", "step 4"]
    assert reader.tail(6)[0].text == "2/9"
    fresh = LogReader(str(tmp_path))
    fresh.seek(tail[-1].offset)
    assert fresh.read() == []
    for one in (reader, fresh):
        one.close()
    writer.close()


@pytest.mark.attack(41)
def test_what_rotation_dropped_is_said_and_the_rest_is_whole(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1000, files=3)
    for number in range(300):
        writer.append(OUT, b"step %d\n" % number, number)
    assert len(segments(tmp_path)) == 3
    reader = LogReader(str(tmp_path))
    items = read_all(reader)
    gap = items[0]
    assert isinstance(gap, Dropped)
    assert gap.why == "rotated"
    assert gap.size == segment_base(segments(tmp_path)[0].name)
    shown = text_of(items)
    assert shown == [f"step {number}" for number in range(300 - len(shown), 300)]
    reader.close()
    writer.close()


def test_a_reader_left_behind_by_rotation_goes_on_and_says_how_much_it_missed(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1000, files=2)
    writer.append(OUT, b"first\n", 0)
    reader = LogReader(str(tmp_path))
    assert text_of(reader.read()) == ["first"]
    for number in range(300):
        writer.append(OUT, b"step %d\n" % number, number)
    items = read_all(reader)
    assert [item.why for item in items if isinstance(item, Dropped)] == ["rotated"]
    assert text_of(items)[-1] == "step 299"
    assert sum(item.size for item in items if isinstance(item, Dropped)) > 0
    reader.close()
    writer.close()


def test_a_long_line_over_segments_is_whole_for_a_reader_that_resumes_behind_its_beginning(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 2000, files=100)
    writer.append(ERR, b"loading", 0)
    for number in range(200):
        writer.append(OUT, b"step %d\n" % number, number)
    reader = LogReader(str(tmp_path))
    last = read_all(reader)[-1]
    reader.close()
    writer.append(ERR, b" done\n", 300)
    resumed = LogReader(str(tmp_path))
    resumed.seek(last.offset)
    assert text_of(resumed.read()) == ["loading done"]
    resumed.close()
    writer.close()


@pytest.mark.attack(41)
def test_a_line_of_a_gibibyte_does_not_fill_the_memory_of_its_reader(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, files=10_000)
    for _ in range(64):
        writer.append(OUT, b"x" * (1 << 19), 0)
    writer.append(OUT, b"\nshort\n", 1)
    reader = LogReader(str(tmp_path))
    long, short = read_all(reader)
    assert isinstance(long, Line)
    assert long.cut == (32 << 20) - (1 << 20)
    assert len(long.text) < (1 << 20) + 100
    assert text_of([short]) == ["short"]
    reader.close()
    writer.close()


@pytest.mark.attack(41)
def test_a_full_disk_costs_output_that_is_counted_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    writer.append(OUT, b"before\n", 0)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: _no_space(real_write, fd, data))
    writer.append(OUT, b"12345\n", 1)
    writer.append(ERR, b"67\n", 2)
    monkeypatch.undo()
    writer.append(OUT, b"after\n", 3)
    writer.sync(4)
    assert writer.lost_bytes == 9
    reader = LogReader(str(tmp_path))
    items = reader.read()
    assert [(item.stream, item.text) for item in items if isinstance(item, Line)] == [
        (OUT, "before"),
        (PLATFORM, "9 bytes of output were lost here: the log could not be written (No space left on device)"),
        (OUT, "after"),
    ]
    reader.close()
    writer.close()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.sampled_from([b"ab", b"c\n", b"\n", b"d\ne"]), st.booleans())),
    st.integers(60, 300),
    st.data(),
)
def test_lost_output_breaks_lines_and_joins_none_and_readers_agree(
    tmp_path: Path, pieces: list[tuple[int, bytes, bool]], max_bytes: int, data: st.DataObject
) -> None:
    directory = tmp_path / os.urandom(8).hex()
    writer = LogWriter(str(directory), max_bytes, files=10_000)
    runs: dict[int, list[bytes]] = {OUT: [b""], ERR: [b""]}
    real_write = os.write
    for number, (stream, payload, full) in enumerate(pieces):
        with pytest.MonkeyPatch.context() as patch:
            if full:
                patch.setattr(os, "write", lambda fd, data: _no_space(real_write, fd, data))
            writer.append(stream, payload, number)
        if full:
            runs[stream].append(b"")
        else:
            runs[stream][-1] += payload
    writer.close()
    found = [item for item in read_log(str(directory), True) if isinstance(item, Line)]
    mark = "[the beginning of this line was dropped] "
    for stream in (OUT, ERR):
        shown = [(line.text.removeprefix(mark), line.end) for line in found if line.stream == stream]
        assert "".join(text + end for text, end in shown) == b"".join(runs[stream]).decode()
        kept = [piece.decode() for run in runs[stream] for piece in run.split(b"\n") if piece]
        assert [text for text, _ in shown if text] == kept
    assert [line.offset for line in found] == sorted({line.offset for line in found})
    if found:
        after = data.draw(st.sampled_from(found))
        assert read_log(str(directory), True, after.offset) == found[found.index(after) + 1 :]


def _no_space(real_write, fd: int, data: bytes) -> int:
    """As a disk with room for a few bytes more: part of it is written, then no more."""
    if len(data) > FRAME_BYTES // 2:
        return real_write(fd, data[: FRAME_BYTES // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("how", ["cut", "deleted"])
def test_a_file_cut_or_taken_from_outside_costs_what_was_in_it_and_no_more(tmp_path: Path, how: str) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    reader = LogReader(str(tmp_path))
    writer.append(OUT, b"given\n", 0)
    assert text_of(reader.read()) == ["given"]
    writer.append(OUT, b"not read yet\n", 0)
    path = segments(tmp_path)[0]
    if how == "cut":
        os.truncate(path, 0)
    else:
        path.unlink()
    writer.append(OUT, b"after\n", 1)
    writer.append(OUT, b"more\n", 2)
    shown = text_of(read_all(reader))
    if how == "cut":
        assert shown == ["after", "more"]
    else:
        assert shown == ["not read yet", "after", "more"]
    fresh = LogReader(str(tmp_path))
    items = read_all(fresh)
    assert [item.why for item in items if isinstance(item, Dropped)] == ["damaged" if how == "cut" else "rotated"]
    assert text_of(items) == ["after", "more"]
    for one in (reader, fresh):
        one.close()
    writer.close()


@pytest.mark.parametrize("cut", range(1, FRAME_BYTES + 6))
def test_half_a_frame_at_the_end_is_waited_for_and_called_damage_only_when_the_log_is_over(
    tmp_path: Path, cut: int
) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    writer.append(OUT, b"one\n", 0)
    writer.append(OUT, b"two2\n", 0)
    writer.close()
    path = segments(tmp_path)[0]
    os.truncate(path, path.stat().st_size - cut)
    whole = cut == FRAME_BYTES + 5
    reader = LogReader(str(tmp_path))
    assert text_of(reader.read()) == ["one"]
    assert reader.read() == []
    assert [item.why for item in reader.finish() if isinstance(item, Dropped)] == ([] if whole else ["damaged"])
    reader.close()


def test_a_flipped_byte_costs_its_segment_and_no_more(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 300, files=100)
    for number in range(60):
        writer.append(OUT, b"step %d\n" % number, number)
    writer.close()
    middle = segments(tmp_path)[2]
    damaged = bytearray(middle.read_bytes())
    damaged[SEGMENT_BYTES + FRAME_BYTES] ^= 0xFF
    middle.write_bytes(damaged)
    reader = LogReader(str(tmp_path))
    items = read_all(reader)
    assert [item.why for item in items if isinstance(item, Dropped)] == ["damaged"]
    shown = text_of(items)
    assert shown[0] == "step 0"
    assert shown[-1] == "step 59"
    assert 60 - 20 < len(shown) < 60
    reader.close()


def test_output_that_never_came_ends_the_line_before_it_and_is_counted(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    writer.append(OUT, b"whole\nbroken off", 0)
    writer.say("at least 70 bytes lost", 1)
    writer.lose(70)
    writer.append(OUT, b"behind\n", 2)
    writer.append(ERR, b"other\n", 3)
    writer.close()
    assert writer.lost_bytes == 70
    assert [(item.stream, item.text, item.end) for item in read_log(str(tmp_path), True) if isinstance(item, Line)] == [
        (OUT, "whole", "\n"),
        (PLATFORM, "at least 70 bytes lost", "\n"),
        (OUT, "broken off", ""),
        (OUT, "behind", "\n"),
        (ERR, "other", "\n"),
    ]


def test_a_line_that_an_engine_cut_into_pieces_is_one_line_of_a_tail(tmp_path: Path) -> None:
    value = {"losses": [f"{number / 7:.6f}" for number in range(7_500)]}
    line = json.dumps(value).encode()
    assert len(line) > 80_000
    writer = LogWriter(str(tmp_path), 20_000, files=100)
    for start in range(0, len(line), 16 << 10):
        writer.append(OUT, line[start : start + (16 << 10)], 0)
    writer.append(OUT, b"\nnext\n", 1)
    writer.close()
    reader = LogReader(str(tmp_path))
    long, last = reader.tail(2)
    assert (json.loads(long.text), last.text) == (value, "next")
    assert [item.text for item in reader.tail(1)] == ["next"]
    reader.close()


def test_a_tail_of_a_task_that_prints_without_rest_is_as_long_as_asked_and_of_one_piece(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, files=200)
    printed, enough = threading.Event(), threading.Event()

    def print_on() -> None:
        number = 0
        while not enough.is_set():
            lines = b"".join(b"step %d loss=0.0\n" % at for at in range(number, number + 50))
            writer.append(OUT, lines, number)
            number += 50
            if number >= 5_000:
                printed.set()

    printing = threading.Thread(target=print_on)
    printing.start()
    try:
        assert printed.wait(30)
        reader = LogReader(str(tmp_path))
        newest = -1
        for _ in range(5):
            numbers = [int(line.text.split()[1]) for line in reader.tail(2_000)]
            assert numbers == list(range(numbers[0], numbers[0] + 2_000))
            assert numbers[-1] > newest
            newest = numbers[-1]
        reader.close()
    finally:
        enough.set()
        printing.join()
    writer.close()


def test_repeated_lines_are_all_kept(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    said = ["One", "Two", "Three", "Two", "One", "Four", *["loss=0.0"] * 100]
    for line in said:
        writer.append(OUT, line.encode() + b"\n", 0)
    reader = LogReader(str(tmp_path))
    assert text_of(reader.read()) == said
    reader.close()
    writer.close()


def test_tail_and_offset_of_a_log_that_is_over(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 1 << 20, 4)
    for number in range(10):
        writer.append(OUT, b"step %d\n" % number, number)
    writer.append(OUT, b"rest", 10)
    writer.close()
    reader = LogReader(str(tmp_path))
    last = reader.tail(2)
    assert [line.text for line in last] == ["step 8", "step 9"]
    assert reader.tail(0) == []
    assert text_of(reader.finish()) == ["rest"]
    reader.close()
    assert texts(read_log(str(tmp_path), True, last[0].offset)) == ["step 9", "rest"]
    assert read_log(str(tmp_path / "none"), True) == []
