"""The frames of an exec session: what is sent is read, and anything else is one clear refusal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidInput
from schemas.exec_frames import (
    DEFAULT_TERM,
    ExecRequest,
    data_frame,
    read_control,
    read_request,
    read_size,
    split_frame,
)
from schemas.limits import EXEC_FRAME_MAX, EXEC_READ_BYTES

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    st.lists(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=5),
    st.booleans(),
    st.integers(1, 10_000),
    st.integers(1, 10_000),
)
def test_a_request_is_read_as_it_was_sent(argv, tty, rows, cols):
    asked = ExecRequest(tuple(argv) if argv and argv[0] else (), tty, rows, cols, "xterm-256color")
    assert read_request(read_control(json.dumps(asked.to_dict()))) == asked


@given(ANYTHING | st.fixed_dictionaries({}, optional=dict.fromkeys(("argv", "tty", "rows", "cols", "term"), ANYTHING)))
def test_anything_else_is_refused_and_nothing_raises(raw):
    try:
        asked = read_request(raw)
    except InvalidInput as error:
        assert error.problem.message
    else:
        assert 0 < asked.rows <= 10_000 and 0 < asked.cols <= 10_000


@pytest.mark.parametrize("term", ["../../x", "x y", "", "a" * 80, 7, "\x1b[31m"])
def test_a_strange_terminal_is_a_plain_one(term):
    assert read_request({"term": term}).term == DEFAULT_TERM


@pytest.mark.parametrize("size", [[0, 1], [1], [1, 2, 3], [True, 1], ["1", 2], None, [10_001, 1]])
def test_a_size_has_two_sides(size):
    with pytest.raises(InvalidInput):
        read_size(size)


def test_frames_hold_what_is_read_at_once():
    assert split_frame(data_frame(1, b"x" * EXEC_READ_BYTES)) == (1, b"x" * EXEC_READ_BYTES)
    for raw in (b"", b"\x03x", b"\x00" + b"x" * EXEC_FRAME_MAX):
        with pytest.raises(InvalidInput):
            split_frame(raw)
    for text in ("", "[", "[]", "7", "[" * 100_000):
        with pytest.raises(InvalidInput):
            read_control(text)
