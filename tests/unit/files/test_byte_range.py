"""Ranges by RFC 9110: whatever is asked, what is sent lies in the file and is what was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.core.byte_range import NotSatisfiable, Span, file_tag, if_match_holds, if_range_holds, span_of

SIZES = st.integers(0, 1 << 60)


@given(st.one_of(st.text(), st.from_regex(r"bytes=[0-9]{0,20}-[0-9]{0,20}(,.*)?", fullmatch=True)), SIZES)
def test_any_header_is_the_whole_a_span_inside_or_refused(header, size):
    try:
        span = span_of(header, size)
    except NotSatisfiable:
        return
    assert span is None or 0 <= span.start < span.end <= size


@given(SIZES, st.data())
def test_spans_are_those_that_were_asked_for(size, data):
    first, last = data.draw(st.integers(0, 1 << 58)), data.draw(st.integers(0, 1 << 58))
    if first > last:
        assert span_of(f"bytes={first}-{last}", size) is None
    elif first >= size:
        with pytest.raises(NotSatisfiable):
            span_of(f"bytes={first}-{last}", size)
    else:
        assert span_of(f"bytes={first}-{last}", size) == Span(first, min(last + 1, size))
        assert span_of(f"bytes={first}-", size) == Span(first, size)
    if size and last:
        assert span_of(f"bytes=-{last}", size) == Span(max(size - last, 0), size)


@pytest.mark.parametrize("header", [None, "", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=1-2,4-5", "items=0-1"])
@pytest.mark.parametrize("size", [0, 10])
def test_what_is_no_single_range_is_the_whole(header, size):
    assert span_of(header, size) is None


def test_tags_tell_every_state_apart():
    state = (1, 2, 3)
    others = [tuple(value + (at == place) for place, value in enumerate(state)) for at in range(3)]
    assert len({file_tag(*one) for one in [state, *others]}) == 4
    tag = file_tag(*state)
    assert tag.isascii() and tag[0] == tag[-1] == '"' and len(tag) == 34
    assert if_match_holds(None, tag) and if_match_holds("*", tag) and if_match_holds(f'"x", {tag}', tag)
    assert not if_match_holds('"x"', tag) and not if_match_holds("", tag)
    assert if_range_holds(None, tag) and if_range_holds(tag, tag)
    # A date is never taken for the same file.
    assert not if_range_holds("Mon, 30 Nov 2026 10:00:00 GMT", tag) and not if_range_holds(f"W/{tag}", tag)
