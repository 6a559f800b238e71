from unicodedata import combining, east_asian_width

import pytest

from console.core.exit_codes import of_status
from console.core.format import (
    _ONE_CELL_EACH,
    UNKNOWN,
    age,
    clipped,
    coarse,
    folded_nodes,
    moment_ms,
    number,
    padded,
    reason_of,
    status_text,
    table,
    utc_text,
    width,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (2, "2s"),
        (99, "99s"),
        (100, "1m"),
        (5_999, "99m"),
        (6_000, "1h40m"),
        (10_800, "3h00m"),
        (172_800, "2d00h"),
        (183_600, "2d03h"),
    ],
)
def test_ages_are_coarse(seconds, text):
    assert coarse(seconds * 1000 + 400) == text


def test_what_nobody_knows_is_a_dash_and_never_zero():
    assert age(None, 5) == number(None) == number(True) == status_text(None) == folded_nodes([]) == "–"
    assert number(0) == "0"
    assert moment_ms("not a time") is None
    assert moment_ms(None) is None


def test_ages_come_from_the_clock_of_the_server():
    began = moment_ms("2026-11-29T17:00:00.000Z")
    assert began is not None
    assert age(began, began + 301_000) == "5m"
    assert age(began, began - 7_000) == "0s"


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (["gpu-03"], "gpu-03"),
        (["gpu-07", "gpu-03"], "gpu-03,07"),
        ([f"gpu-{at:02}" for at in range(8, 16)], "gpu-08…15"),
        (["gpu-1", "gpu-2", "gpu-3", "gpu-9"], "gpu-1…3,9"),
        (["a", "b"], "a,b"),
        (["n1.rack", "n2.rack"], "n1.rack,n2.rack"),
        (["a1", "b1", "c1", "d1", "e1", "f1"], "a1,b1,c1,d1,+2"),
    ],
)
def test_nodes_are_folded(nodes, text):
    assert folded_nodes(nodes) == text


def test_cells_are_counted_as_terminals_draw_them():
    assert width("训练") == 4
    assert width("e\u0301") == 1
    assert clipped("训练训练", 5) == "训练…"
    assert clipped("abc", 3) == "abc"
    assert padded("训", 4) == "训  "
    assert padded("7", 3, right=True) == "  7"


def test_columns_are_aligned_and_the_last_one_is_cut_to_the_line():
    lines = table(("NAME", "GPU", "WHY"), [("训练", "2", "x" * 100), ("abc", "128", "")], right=("GPU",), last_cells=30)
    assert lines[0] == "NAME  GPU  WHY"
    assert lines[1].startswith("训练    2  xxx")
    assert lines[2] == "abc   128"
    assert max(map(width, lines)) <= 30
    assert table(("A",), [("x" * 500,)])[1] == "x" * 500


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (413, 2), (415, 2), (422, 2), (404, 3), (503, 4), (507, 4), (401, 5), (409, 5), (410, 5)],
)
def test_exit_codes_of_refusals(status, code):
    assert of_status(status) == code


def test_what_is_counted_without_looking_at_each_character_is_one_cell_wide():
    for code in range(0x20, 0x30000):
        if _ONE_CELL_EACH.fullmatch(chr(code)):
            assert not combining(chr(code)) and east_asian_width(chr(code)) not in "WF", hex(code)
    assert width("…–█⣿é") == 5 and width("宽…") == 3


def test_a_moment_and_a_reason_as_people_read_them():
    assert utc_text("2026-11-30T15:04:55.073Z") == "2026-11-30 15:04:55 UTC"
    assert utc_text(None) == utc_text("soon") == UNKNOWN
    assert reason_of(FileNotFoundError(2, "No such file or directory", "/nope")) == "No such file or directory"
    assert reason_of(ValueError("line 3")) == "line 3"
