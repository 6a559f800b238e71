"""The first line: what gives way on a narrow terminal, and what never does."""

import pytest

from console.core.header import HeaderFacts, header
from console.core.line import headed, line_width, plain

WELL = HeaderFacts(
    mesh="9c41f2d0",
    attached="gpu-03",
    leader="gpu-07",
    voters=5,
    voters_up=5,
    nodes_ready=24,
    nodes=24,
    cards_used=160,
    cards=192,
    waiting=7,
    alerts=2,
    silent_s=0.0,
    trouble="",
    read_only=False,
    loaded=True,
)
ILL = {"voters_up": 3, "nodes_ready": 23}


def shown(cells: int, **changed: object) -> str:
    facts = HeaderFacts(**{name: getattr(WELL, name) for name in HeaderFacts.__slots__} | changed)
    drawn = header(["groups"], facts, cells)
    assert line_width(drawn) <= cells
    return plain(drawn)


def test_with_room_for_all_there_is_a_bar():
    text = shown(140)
    for fact in ("9c41f2d0 ▸ groups", "via gpu-03", "leader gpu-07", "quorum 5/5", "nodes 24", "GPU 160/192 ", "83%"):
        assert fact in text
    assert "█" in text


def test_at_eighty_cells_the_bar_goes_before_the_quorum():
    text = shown(80)
    assert "quorum 5/5 · nodes 24 · GPU 160/192 · queue 7 · ▲ 2" in text and "█" not in text


@pytest.mark.parametrize("cells", [80, 70, 60])
def test_what_is_wrong_stays(cells: int):
    text = shown(cells, **ILL)
    for fact in ("quorum 3/5 (spare 0)", "nodes 23/24", "▲ 2"):
        assert fact in text


@pytest.mark.parametrize("cells", [80, 120])
def test_a_long_name_hides_neither_what_is_wrong_nor_where_one_is(cells: int):
    facts = HeaderFacts(**{name: getattr(WELL, name) for name in HeaderFacts.__slots__} | ILL)
    text = plain(header(["long-" * 30, "detail"], facts, cells))
    for said in ("long-", "… ▸ detail ", "quorum 3/5 (spare 0)", "nodes 23/24", "▲ 2"):
        assert said in text


def test_a_long_name_in_a_rule_leaves_its_id():
    assert "…  tg-1 ─" in plain(headed("long-" * 30, "tg-1", 80))
