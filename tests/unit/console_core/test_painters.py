"""Painters: pure functions from state to lines, checked as text."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.core import line
from console.core.chart import LABEL_CELLS, ChartOptions, chart_lines, notes, reading_at
from console.core.columns import Column, laid_out
from console.core.format import width
from console.core.group_list import Progress, layout, row_line, text_widths, value_text
from console.core.header import bar
from console.core.line import cut, exactly, flowed, line_width, plain, spread, wrapped
from console.core.log_lines import log_line, prefix_cells
from console.core.log_ring import LogLine, LogRing, ShownLines, parts_of, safe_text
from console.core.mesh_lines import mesh_summary, voter_head, voter_line
from console.core.row_filter import row_filter
from console.core.row_order import RowOrder
from console.core.sanitize import sanitize
from console.core.ticks import short, ticks
from console.core.timeline import Lane, Stretch, Window, timeline_lines
from console.store.rows import group_of_row
from tests.snapshots.canned_mesh import NOW_MS, group_row
from tests.snapshots.example_mesh import status as example_status

TEXTS = st.text(max_size=40).map(sanitize)
SPANS = st.lists(st.tuples(TEXTS, st.sampled_from(line.TONES)), max_size=6).map(tuple)


@settings(deadline=None)
@given(SPANS, st.integers(0, 60))
def test_a_line_is_never_wider_than_asked(spans, cells):
    assert line_width(cut(spans, cells)) <= cells
    assert line_width(exactly(spans, cells)) == cells


@settings(deadline=None)
@given(SPANS, SPANS, st.integers(1, 60))
def test_spread_fills_the_width(left, right, cells):
    assert line_width(spread(left, right, cells)) == cells


def test_what_is_cut_stays_apart_from_what_stands_beside_it():
    assert plain(spread((("left" * 9, "text"),), (("right", "text"),), 20)) == "leftleftleftl… right"
    assert plain(spread((("left" * 9, "text"),), (("right" * 9, "text"),), 20)) == "leftleft… rightrigh…"


@settings(deadline=None)
@given(TEXTS, st.integers(2, 30))
def test_wrapped_text_fits_and_loses_no_letter(text, cells):
    lines = wrapped(text, cells)
    assert all(width(part) <= cells for part in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")


def test_a_wide_character_is_not_halved():
    assert plain(cut((("训练任务", "text"),), 4)) == "训…"
    assert plain(exactly((("训练任务", "text"),), 4)) == "训… "


@settings(deadline=None)
@given(TEXTS, TEXTS, st.integers(40, 200), st.booleans())
def test_every_row_of_groups_has_the_same_width(name, user, cells, progress):
    group = group_of_row(group_row(1, name, "failed", 2, 8, user=user, failure={"text": name + user, "rank": 3}))
    shape = layout(cells, progress, {})
    widths = {line_width(row_line(shape, group, NOW_MS, here, False, False, None)) for here in (True, False)}
    assert len(widths) == 1 and widths.pop() <= cells


@settings(deadline=None)
@given(st.integers(1, 1250), st.integers(1, 16), st.floats(0, 1e18), st.integers(60, 200))
def test_no_number_of_a_row_is_cut(nodes, cards, step, cells):
    group = group_of_row(group_row(1, "huge", "running", nodes, cards))
    shape = layout(cells, True, text_widths(group))
    said = plain(row_line(shape, group, NOW_MS, False, False, False, Progress(step, 1.0, NOW_MS)))
    numbers = [said_part for said_part in said.split() if said_part.rstrip("…").replace(",", "").isdigit()]
    assert f"{nodes * cards:,}" in numbers and not any("…" in item for item in numbers)


def test_weak_columns_go_first_and_strong_ones_grow():
    columns = (Column("a", "A", 5, 10, 9, grows=1), Column("b", "B", 5, 5, 1), Column("c", "C", 5, 5, 2))
    assert [column.name for column, _ in laid_out(columns, 30).columns] == ["a", "b", "c"]
    assert [(column.name, wide) for column, wide in laid_out(columns, 13).columns] == [("a", 6), ("c", 5)]
    assert [column.name for column, _ in laid_out(columns, 3).columns] == ["a"]


@settings(deadline=None)
@given(st.integers(40, 240), st.integers(0, 40), st.integers(0, 40))
def test_a_column_takes_no_more_than_what_stands_in_it_and_the_reason_has_the_rest(cells, name, user):
    wide = {column.name: at for column, at in layout(cells, True, {"name": name, "user": user}).columns}
    assert wide["name"] <= max(name, len("NAME") + 1)
    assert wide.get("user", 0) <= max(user, len("WHO") + 1)
    before = {column.name: at for column, at in layout(cells, True, {}).columns}
    assert wide.get("why", 0) >= before.get("why", 0) or len(wide) > len(before) or user > before.get("user", 0)


@pytest.mark.parametrize("cells", [160, 180, 220])
def test_who_is_not_cut_where_there_is_room(cells):
    group = group_of_row(group_row(1, "qwen2-moe-pretrain-with-a-long-name", "failed", 8, 8, user="platform-team"))
    row = plain(row_line(layout(cells, True, text_widths(group)), group, NOW_MS, False, False, False, None))
    assert "platform-te" in row


@settings(deadline=None)
@given(TEXTS, st.integers(2, 40))
def test_a_long_line_of_a_log_is_broken_by_cells_and_loses_nothing(text, cells):
    parts = parts_of(text, cells)
    assert "".join(parts) == text
    assert all(width(part) <= cells for part in parts)


@pytest.mark.parametrize("stream", ["out", "platform"])
@pytest.mark.parametrize("text", ["训练任务" * 30, "loss 1.0 " * 30, "a" * 64])
def test_every_letter_of_a_broken_line_is_painted(text, stream):
    ring = LogRing()
    ring.add(LogLine(0, 1, "", stream, text))
    cells = 40
    shown = ShownLines(ring, cells=cells - prefix_cells(True, True))
    shown.catch_up()
    rows = [
        log_line(ring[0], part, cells, True, True, True, "", False) for _, part in map(shown.at, range(shown.count()))
    ]
    assert all(line_width(row) <= cells for row in rows)
    assert (
        "".join(plain(row)[prefix_cells(True, True) :] for row in rows) == ("◈ " if stream == "platform" else "") + text
    )


@given(st.lists(TEXTS, max_size=12), st.integers(1, 60))
def test_flowed_parts_are_whole(texts, cells):
    rows = flowed([((text, "text"),) for text in texts if text], cells)
    assert "".join(plain(row) for row in rows).replace(" ", "") == "".join(texts).replace(" ", "")
    assert all(line_width(row) <= cells or len(row) == 1 for row in rows)


def test_the_age_of_a_row_does_not_change_with_every_second():
    shape = layout(220, False, {})
    group = group_of_row(group_row(1, "a", "pending", 1, 1, created_ms=NOW_MS))
    shown = [plain(row_line(shape, group, NOW_MS + at * 1000, False, False, False, None)) for at in range(600)]
    assert len(set(shown)) == 10 and " <1m " in shown[59] and " 1m " in shown[60] and " 9m " in shown[599]


# Charts


def chart(points, glyphs="ascii", cells=40, height=10, **options):
    return [plain(row) for row in chart_lines(points, cells, height, ChartOptions(glyphs=glyphs, **options))]


@pytest.mark.parametrize("glyphs", ["braille", "block", "ascii"])
@pytest.mark.parametrize("log", [False, True])
def test_chart_fills_its_box(glyphs, log):
    rows = chart([(step, 1 / (step + 1)) for step in range(500)], glyphs, 60, 14, log=log)
    assert len(rows) == 14 and all(width(row) == 60 for row in rows)


def test_a_spike_survives_decimation():
    points = [(step, 0.0) for step in range(100_000)]
    points[54_321] = (54_321, 100.0)
    top = chart(points)[0]
    assert top[LABEL_CELLS:].strip() in ("*", "|")


def test_the_axis_marks_what_is_no_number_and_restarts():
    points = [(step, 1.0 + step) for step in range(50)] + [(step, 30.0 + step) for step in range(30, 60)]
    points[10] = (10, math.nan)
    axis = chart(points, cells=69)[-2]
    assert axis.count("N") == 1 and axis.count("R") == 1
    said = notes(points)
    assert "step 10" in said[0] and "step 30" in said[1]


def test_nan_leaves_a_gap():
    points = [(0, 1.0), (1, math.nan), (2, 1.0)]
    row = next(row for row in chart(points, cells=LABEL_CELLS + 21) if "*" in row)
    assert "*" + " " * 19 + "*" in row


def test_log_axis_takes_no_zero():
    rows = chart([(0, 0.0), (1, 1.0), (2, 100.0)], log=True)
    assert rows[-2].count("N") == 1 and "100" in rows[0]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.floats(allow_nan=True, allow_infinity=True)), max_size=60),
    st.integers(0, 60),
    st.integers(0, 20),
)
def test_no_points_break_a_chart(points, cells, height):
    for glyphs in ("braille", "block", "ascii"):
        for row in chart_lines(points, cells, height, ChartOptions(glyphs=glyphs, cursor=0.5)):
            assert line_width(row) <= max(cells, 24)


def test_reading_is_the_nearest_point():
    assert reading_at([(0, 5.0), (10, 6.0), (100, 7.0)], 0.12).value == 6.0
    assert reading_at([], 0.5) is None


def test_ticks_are_round_numbers():
    assert ticks(0, 12_400, 6) == [0, 5000, 10_000]
    assert short(12_000) == "12k" and short(3_400_000) == "3.4M"
    assert ticks(5, 5, 3) == [5] and ticks(math.nan, 1, 3) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "NaN"),
        (math.inf, "+inf"),
        (1.28413, "1.2841"),
        (0.0000123, "1.2e-05"),
        (0.0, "0.0000"),
        (123.456, "123.5"),
    ],
)
def test_values_have_fixed_precision(value, text):
    assert value_text(value) == text


def test_bar_is_full_only_when_full():
    assert plain(bar(0, 10)) == "·" * 10 and plain(bar(1, 10)) == "█" * 10
    assert plain(bar(0.001, 10)).startswith("▏")


# Timeline


def lane(rank, *stretches, end="R running", node="gpu-01"):
    return Lane(1, rank, node, tuple(Stretch(*item) for item in stretches), (end, "good"))


def test_a_short_fault_never_disappears():
    lanes = [lane(0, (0, 1_000_000, "runs"), (500_000, 500_000, "fault"))]
    (_, row) = timeline_lines(lanes, Window(0, 1_000_000), 1_000_000, 80, None)
    assert "✖" in plain(row)


def test_equal_lanes_fold_and_others_do_not():
    same = [lane(rank, (0, None, "runs"), node=f"gpu-{rank:02d}") for rank in range(512)]
    other = lane(512, (0, 50_000, "runs"), end="F exit 1", node="gpu-99")
    rows = [plain(row) for row in timeline_lines([*same, other], Window(0, 100_000), 100_000, 100, None)]
    assert len(rows) == 3 and "ranks 0-511" in rows[1] and "rank 512" in rows[2] and "F exit 1" in rows[2]


@pytest.mark.parametrize("cells", [80, 100, 160])
@pytest.mark.parametrize(("first", "last"), [(0, 7), (0, 1249), (1000, 1249)])
def test_no_rank_of_a_lane_is_cut(first, last, cells):
    same = [lane(rank, (0, None, "runs"), node=f"node-{rank:04d}") for rank in range(first, last + 1)]
    (_, row) = timeline_lines(same, Window(0, 100_000), 100_000, cells, None)
    assert f"{first}-{last} " in plain(row)


@pytest.mark.parametrize("cells", [60, 80, 100, 160])
@pytest.mark.parametrize("end", ["F signal 15 18:03:05", "✖ lost 18:03:05", "F exit 1 18:03:05", "R running"])
def test_the_time_at_the_end_of_a_lane_is_whole_or_not_there(end, cells):
    (_, row) = timeline_lines([lane(0, (0, 9, "runs"), end=end)], Window(0, 9), 9, cells, None)
    said = plain(row).split("  ")[-1].strip() if end not in plain(row) else end
    assert end.startswith(" ".join(said.split())) and "…" not in plain(row)
    assert end.split()[1] in plain(row)


@settings(deadline=None)
@given(st.integers(20, 200), st.floats(0, 1))
def test_timeline_rows_fit(cells, cursor):
    rows = timeline_lines([lane(0, (-5000, 2000, "waits"), (2000, None, "runs"))], Window(0, 9000), 9000, cells, cursor)
    assert all(line_width(row) <= max(cells, 61) for row in rows)


# Log


def said(text, rank=0, stream="out"):
    return LogLine(rank, 1, "2026-11-29T19:00:00.000Z", stream, text)


def filled(count, most=100):
    ring = LogRing(most)
    for at in range(count):
        ring.add(said(f"line {at}"))
    return ring


def test_ring_keeps_the_newest_and_counts_the_rest():
    ring = filled(20_000, most=1000)
    assert ring.end == 20_000 and ring.first > 13_000 and ring[ring.end - 1].text == "line 19999"


def test_search_goes_round():
    ring = filled(50)
    assert ring.find("LINE 7", 0) == 7
    assert ring.find("line 7", 7) == 7
    assert ring.find("line 3", 49) == 3
    assert ring.find("line 4", 10, back=True) == 4
    assert ring.find("nothing", 0) is None


def test_only_matching_lines_and_more_as_they_come():
    ring = filled(50)
    shown = ShownLines(ring, "line 1")
    shown.catch_up()
    assert shown.count() == 11
    ring.add(said("line 100"))
    shown.catch_up()
    assert shown.count() == 12 and shown.at(11) == (50, 0) and shown.row_of(50) == 11


def test_wrapped_lines_take_several_rows():
    ring = LogRing()
    ring.add(said("x" * 25))
    shown = ShownLines(ring, cells=10)
    shown.catch_up()
    assert shown.count() == 3 and shown.at(2) == (0, 2)


def test_rows_that_fall_out_are_counted():
    ring = LogRing(100)
    shown = ShownLines(ring)
    for at in range(6000):
        ring.add(said(str(at)))
    assert shown.catch_up() == ring.first > 0
    assert shown.at(0) == (ring.first, 0)


def test_matches_are_marked_where_they_are():
    row = log_line(said("a Loss b loss"), 0, 60, False, True, True, "loss", False)
    assert [text for text, tone in row if tone == line.MATCH] == ["Loss", "loss"]


def test_a_line_whose_lower_case_is_longer_is_marked_whole():
    row = log_line(said("İİ loss"), 0, 60, False, False, False, "loss", False)
    assert [text for text, tone in row if tone == line.MATCH] == ["İİ loss"]


def test_long_lines_are_cut_and_say_so():
    assert safe_text("x" * 1_000_000).endswith("… 995,904 more characters")


# Filter and order


def test_filter_terms():
    fields = ("status", "gpu")
    known = {"status": lambda: "failed", "gpu": lambda: 16}
    for words, fits in (
        ("math", True),
        ("!math", False),
        ("status=fail", True),
        ("!status=fail", False),
        ("gpu>8", True),
        ("gpu<8", False),
        ("gpu>x", False),
        ("lr=1e-4", True),
        ("", True),
        ("!", True),
        ("math status=run", False),
    ):
        assert row_filter(words, fields).matches("llama math lr=1e-4", known) is fits, words


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.one_of(st.none(), st.integers(0, 3))), max_size=60))
def test_order_is_what_sorting_gives(changes):
    order, twin = RowOrder(), {}
    for row, key in changes:
        order.update([(row, key)])
        twin = {**twin, row: key} if key is not None else {name: had for name, had in twin.items() if name != row}
        assert order.rows() == sorted(twin, key=lambda name: (twin[name], name))
        assert all(order.row(order.place(name) or 0) == name for name in twin)


@pytest.mark.parametrize("cells", [80, 100, 160])
@pytest.mark.parametrize("address", ["10.0.0.1:7461", "127.117.76.1:7461", "[fd00:1:2::a4]:7461"])
def test_the_address_of_a_voter_is_whole(address, cells):
    status = example_status([{"raft_id": 1, "node": "gpu-01", "voter_addr": address}])
    row = voter_line(status, "1", False, cells)
    assert address in plain(row) and line_width(row) == line_width(voter_head(status, cells))


def test_what_operators_ordered_of_the_mesh_stands_in_its_view():
    quiet = plain(mesh_summary({"cluster_id": "c"}))
    assert "paused" not in quiet and "held" not in quiet
    asked = {"by": "ada", "reason": "switch"}
    said = plain(mesh_summary({"scheduling_paused": asked, "hold": asked | {"left_s": 1700}}))
    assert "scheduling paused by ada (switch)" in said and "held by ada (switch), 28m left" in said
