"""What stands beside a name is apart from it, whole, and told once."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.core import line
from console.core.alert_lines import alert_in_full
from console.core.attention import Attention
from console.core.detail_lines import _fact
from console.core.event_lines import event_log, newest, told_once
from console.core.line import hung, line_width, plain, shortened
from console.core.sanitize import sanitize
from console.store.rows import Event
from schemas.task_group.fields import SECTIONS

NAMES = [name for section in SECTIONS.values() for name in section.fields] + ["checkpoint_every", "x" * 64]
TEXTS = st.text(max_size=200).map(sanitize)


def event(text: str, at_ms: int = 0, kind: str = "running") -> Event:
    return Event(at_ms=at_ms, kind=kind, rank=None, attempt=1, node="", text=text)


def letters(lines: list[line.Line]) -> str:
    return re.sub(r"\s", "", "".join(plain(item) for item in lines))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_name_is_apart_from_its_value(depth):
    for name in NAMES:
        shown = "".join(plain(item) for item in _fact(name, "7", 80, depth))
        assert shown.split() == [name, "7"]


@settings(deadline=None)
@given(st.sampled_from(NAMES), TEXTS, st.integers(80, 200))
def test_a_long_value_goes_on_below_and_nothing_of_it_is_cut(name, value, cells):
    lines = _fact(name, value, cells)
    assert all(line_width(item) <= cells for item in lines)
    assert letters(lines) == name + re.sub(r"\s", "", value)


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(60, 200))
def test_every_event_can_be_read_to_its_end(words, cells):
    texts = ["word " * count + f"end {at}" for at, count in enumerate(words)]
    lines = event_log([event(text, at) for at, text in enumerate(texts)], 10_000, cells)
    assert all(line_width(item) <= cells for item in lines)
    assert all(re.sub(r"\s", "", text) in letters([item[-1:] for item in lines]) for text in texts)


# As the mesh records the end of a group of one rank, and of several.
EXITED, ROOT, BEING = "Rank 0 on node-1 exited 3.", "Rank 0 on node-1 exited 3.", " The other ranks are being stopped."
RECORDS = {
    "one rank": [
        event(EXITED, 5, "rank_exited"),
        event(ROOT, 5, "root_failure"),
        event(f"Failed: {ROOT}", 5, "failed"),
    ],
    "several": [event(EXITED, 5, "rank_exited"), event(ROOT + BEING, 5, "root_failure"), event("later", 9)],
    "the other way": [event(ROOT + BEING, 5, "root_failure"), event(EXITED, 5, "rank_exited"), event("later", 9)],
}


@pytest.mark.parametrize("record", RECORDS)
def test_what_one_command_records_in_the_same_words_is_told_once(record):
    told = [item.text for item in newest(RECORDS[record], 3)]
    assert sum(EXITED in text for text in told) == 1
    assert told[0] in (f"Failed: {ROOT}", ROOT + BEING)


def test_what_happens_again_later_is_told_again():
    again = [event("Host gpu-05 was lost.", at, "node_lost") for at in (1, 2, 3)]
    assert told_once(again) == again


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "ab", "b", "abc", ""]), st.integers(0, 2)), max_size=8))
def test_nothing_that_was_recorded_is_told_nowhere(records):
    events = [event(text, at, "e") for text, at in sorted(records, key=lambda item: item[1])]
    told = told_once(events)
    for item in events:
        assert any(one.at_ms == item.at_ms and (item.text or item.kind) in (one.text or one.kind) for one in told)
    for before, after in pairwise(told):
        assert before.at_ms != after.at_ms or (before.text or before.kind) not in (after.text or after.kind)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=8), st.integers(1, 6), st.integers(4, 40))
def test_lines_without_room_leave_a_sign(texts, most, cells):
    lines = [((text, line.TEXT),) for text in texts]
    shown = shortened([line.cut(item, cells) for item in lines], most, cells)
    assert len(shown) == min(most, len(lines)) and all(line_width(item) <= cells for item in shown)
    assert len(lines) <= most or plain(shown[-1]).endswith("…")


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(60, 160))
def test_however_long_a_reason_is_the_advice_has_room(words, cells):
    item = Attention(line.BAD, "group", "very long " * words, "Start its agent again.", None, ("mesh", ""))
    lines = shortened(alert_in_full(item, cells, 6), 6, cells)
    assert plain(lines[-1]).strip() == "Start its agent again."


@settings(deadline=None)
@given(TEXTS, st.integers(0, 20), st.integers(30, 100))
def test_what_hangs_stays_behind_its_head(text, indent, cells):
    head = (("h" * indent, line.DIM),)
    for item in hung(head, text, line.TEXT, cells)[1:]:
        assert plain(item).startswith(" " * indent) and line_width(item) <= cells
