"""The picture of the README: glyphs stand where the terminal puts them, also in a renderer that knows no textLength."""

import re

from scripts.demo_picture import drawable

WORD = '<text class="a" x="109.8" y="20" textLength="36.6" clip-path="url(#l0)">&#160;ok</text>'
CURVE = '<text class="a" x="12.2" y="20" textLength="36.6" clip-path="url(#l0)">⢱&amp;⡀</text>'


def places(svg: str) -> list[tuple[str, str]]:
    return re.findall(r'<text xml:space="preserve" class="a" x="([\d.]+)" y="20"[^>]*>([^<]*)</text>', svg)


def test_words_stay_whole_with_the_spaces_that_begin_them():
    assert places(drawable(WORD)) == [("109.8", "\xa0ok")]


def test_glyphs_of_another_font_stand_in_their_own_cells():
    assert places(drawable(CURVE)) == [("12.2", "⢱"), ("24.4", "&amp;"), ("36.6", "⡀")]
