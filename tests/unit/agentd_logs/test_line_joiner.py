"""Frames to lines: joining, line ends, limits, and offsets that grow."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.core.frames import CONTINUES, ERR, FRAME_BYTES, OUT, PLATFORM, Frame
from agentd.core.log_window import Line, LineJoiner


def frames(*pieces: tuple[int, bytes]) -> list[Frame]:
    """As the writer makes them, flags included."""
    made: list[Frame] = []
    offset = 0
    open_streams: set[int] = set()
    for number, (stream, payload) in enumerate(pieces):
        made.append(Frame(offset, stream, CONTINUES if stream in open_streams else 0, number, payload))
        offset = made[-1].end
        (open_streams.discard if payload.endswith(b"\n") else open_streams.add)(stream)
    return made


def lines(*pieces: tuple[int, bytes], joiner: LineJoiner | None = None) -> list[Line]:
    joiner = joiner or LineJoiner()
    made = frames(*pieces)
    found = [line for frame in made for line in joiner.feed(frame)]
    return found + list(joiner.finish(made[-1].end if made else 0))


def texts(*pieces: tuple[int, bytes]) -> list[tuple[str, str]]:
    return [(line.text, line.end) for line in lines(*pieces)]


def test_a_line_in_many_frames_is_one_line_also_between_lines_of_the_other_stream() -> None:
    found = lines((OUT, b"ab"), (ERR, b"e\n"), (OUT, b"c"), (OUT, b"d\nx\n"))
    assert [(line.stream, line.text) for line in found] == [(ERR, "e"), (OUT, "abcd"), (OUT, "x")]


def test_a_character_split_over_frames_is_whole() -> None:
    data = "损失 🚀\n".encode()
    assert texts(*((OUT, data[i : i + 1]) for i in range(len(data)))) == [("损失 🚀", "\n")]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a\r\nb\n"], [("a", "\r\n"), ("b", "\n")]),
        ([b"a\r", b"\nb\n"], [("a", "\r\n"), ("b", "\n")]),
        ([b"10%\r20%\r30%\n"], [("10%", "\r"), ("20%", "\r"), ("30%", "\n")]),
        ([b"10%\r", b"20%\r", b"\n"], [("10%", "\r"), ("20%", "\r\n")]),
        ([b"\r 1/9", b"\r 2/9"], [("", "\r"), (" 1/9", "\r"), (" 2/9", "")]),
        ([b"end\r"], [("end", "\r")]),
        ([b"\n\n"], [("", "\n"), ("", "\n")]),
        ([b"no end"], [("no end", "")]),
    ],
)
def test_line_ends(pieces: list[bytes], expected: list[tuple[str, str]]) -> None:
    assert texts(*((OUT, piece) for piece in pieces)) == expected


def test_escape_sequences_and_bytes_that_are_no_text_pass_through() -> None:
    assert texts((OUT, b"\x1b[31mred\x1b[0m \xff\xfe\x00\n")) == [("\x1b[31mred\x1b[0m \ufffd\ufffd\x00", "\n")]


@pytest.mark.attack(41)
def test_a_line_too_long_is_cut_with_a_mark_and_a_count_and_the_next_one_is_whole() -> None:
    found = lines((OUT, b"x" * 60), (OUT, b"x" * 60 + b"\nnext\n"), joiner=LineJoiner(cap=100))
    assert [line.cut for line in found] == [20, 0]
    assert found[0].text == "x" * 100 + " [20 more bytes of this line are not shown]"
    assert found[1].text == "next"


@pytest.mark.attack(49)
def test_a_platform_line_is_one_frame_and_no_task_can_write_one() -> None:
    found = lines((OUT, b"half"), (PLATFORM, b"7 bytes lost"), (OUT, b" done\n"))
    assert [(line.stream, line.text) for line in found] == [(PLATFORM, "7 bytes lost"), (OUT, "half done")]


def test_a_line_without_its_head_is_marked() -> None:
    joiner = LineJoiner()
    made = frames((OUT, b"head "), (OUT, b"tail\n"), (OUT, b"whole\n"))[1:]
    marked = [line for frame in made for line in joiner.feed(frame)]
    assert marked[0].headless
    assert marked[0].text.endswith(" tail")
    assert not marked[1].headless


def test_unfinished_lines_of_both_streams_have_offsets_of_their_own() -> None:
    found = lines((ERR, b"e"), (OUT, b"o"))
    end = frames((ERR, b"e"), (OUT, b"o"))[-1].end
    assert [(line.offset, line.text) for line in found] == [(end + OUT, "o"), (end + ERR, "e")]


PIECES = st.lists(
    st.tuples(st.sampled_from([OUT, ERR]), st.lists(st.sampled_from([b"a", b"\n", b"\r", "é".encode()])).map(b"".join)),
    max_size=30,
)


@settings(deadline=None)
@given(PIECES)
def test_nothing_is_lost_and_offsets_grow(pieces: list[tuple[int, bytes]]) -> None:
    found = lines(*pieces)
    offsets = [line.offset for line in found]
    assert offsets == sorted(set(offsets))
    for stream in (OUT, ERR):
        written = b"".join(payload for at, payload in pieces if at == stream)
        shown = "".join(line.text + line.end for line in found if line.stream == stream)
        assert shown == written.decode()


@settings(deadline=None)
@given(PIECES, st.data())
def test_everything_after_an_offset_is_the_rest(pieces: list[tuple[int, bytes]], data: st.DataObject) -> None:
    found = lines(*pieces)
    if not found:
        return
    after = data.draw(st.sampled_from(found)).offset
    place = next(index for index, line in enumerate(found) if line.offset == after)
    assert [line for line in lines(*pieces) if line.offset > after] == found[place + 1 :]


def test_the_header_size_is_part_of_the_offset() -> None:
    assert lines((OUT, b"a\nb\n"))[0].offset == FRAME_BYTES + 2
