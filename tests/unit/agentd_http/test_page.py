"""Pages of a whole: nothing twice, nothing missed, also while things come and go between two of them."""

from hypothesis import given
from hypothesis import strategies as st

from agentd.http.page import page_of

NAMES = st.lists(st.text("abc-0", min_size=1, max_size=4), unique=True, max_size=30).map(sorted)


def read_all(items, limit):
    read, after = [], ""
    while True:
        page, cursor = page_of(items, after, limit, str)
        read.append(page)
        if cursor is None:
            return read
        after = cursor


@given(NAMES, st.integers(1, 7))
def test_pages_are_the_whole_once(items, limit):
    pages = read_all(items, limit)
    assert [item for page in pages for item in page] == items
    assert all(len(page) == limit for page in pages[:-1]) and len(pages) == max(1, -(-len(items) // limit))


@given(NAMES, NAMES, st.integers(1, 7))
def test_what_stays_is_read_once_whatever_comes_and_goes(before, later, limit):
    first, cursor = page_of(before, "", limit, str)
    read = list(first)
    while cursor is not None:
        page, cursor = page_of(later, cursor, limit, str)
        read += page
    stayed = [item for item in before if item in later or item in first]
    assert len(read) == len(set(read))
    assert set(stayed) <= set(read)
