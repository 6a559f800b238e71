"""Nothing that came from elsewhere can drive the terminal, and what is harmless stays readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.sanitize import PLATFORM_MARK, RESET, sanitize, sanitize_all

HOSTILE = {
    "OSC 0 title, BEL": ("\x1b]0;HACKED\x07x", "x"),
    "OSC 2 title, ST": ("\x1b]2;HACKED\x1b\\x", "x"),
    "OSC 52 clipboard": ("a\x1b]52;c;cm0gLXJmIC8=\x07b", "ab"),
    "OSC 8 link": ("\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"),
    "OSC, C1 bytes": ("\x9d0;HACKED\x9cx", "x"),
    "OSC without end": ("\x1b]0;HACKED", "␛]0;HACKED"),
    "clear screen": ("\x1b[2J\x1b[Hx", "x"),
    "C1 CSI": ("\x9b2Jx", "x"),
    "conceal": ("\x1b[8m hidden", " hidden"),
    "DCS": ("\x1bP$q\x1b\\x", "x"),
    "APC": ("\x1b_payload\x1b\\x", "x"),
    "PM": ("\x1b^payload\x1b\\x", "x"),
    "SOS": ("\x1bXpayload\x1b\\x", "x"),
    "charset": ("\x1b(0lqk", "lqk"),
    "reset terminal": ("\x1bcx", "␛cx"),
    "carriage return": ("real\rfake", "real␍fake"),
    "erase and fake": ("\r\x1b[2KStatus: completed", "␍Status: completed"),
    "bell, backspace": ("a\x07b\x08c", "a␇b␈c"),
    "delete": ("a\x7fb", "a␡b"),
    "bidi override": ("x\u202ey", "x\ufffdy"),
    "bidi isolate": ("x\u2066y\u2069", "x\ufffdy\ufffd"),
    "zero width": ("a\u200bb\ufeff", "ab"),
    "lone C1": ("a\x85b\x9cc", "a\ufffdb\ufffdc"),
    "line separator": ("a\u2028b", "a b"),
    "NUL": ("a\0b", "a␀b"),
    "new line in a name": ("a\nb\tc", "a b c"),
    "nested": ("\x1b\x1b[2J[2J", "␛[2J"),
}


@pytest.mark.attack(48)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_neutralised(name):
    text, shown = HOSTILE[name]
    assert sanitize(text) == shown


@pytest.mark.parametrize("text", ["plain", "训练 🚀 é ─│", "tabs are not here", "", "100 % [red]x[/]"])
def test_harmless_text_is_untouched(text):
    assert sanitize(text) == text


def test_colours_stay_where_they_are_wanted_and_end_with_the_line():
    assert sanitize("\x1b[1;31mno reset", colours=True) == "\x1b[1;31mno reset" + RESET
    assert sanitize("\x1b[38;5;208mx\x1b[48;2;1;2;3my", colours=True) == "\x1b[38;5;208mx\x1b[48;2;1;2;3my" + RESET
    assert sanitize("\x1b[31mred\x1b[0m") == "red"


@pytest.mark.parametrize(
    "sequence",
    ["\x1b[8m", "\x1b[5m", "\x1b[2J", "\x1b[10;1H", "\x1b[?25l", "\x1b[38;5m", "\x1b[38;2;1;2m", "\x1b[99999999m"],
)
def test_only_colours_pass_as_colours(sequence):
    assert sanitize(f"a{sequence}b", colours=True) == "ab"


def test_conceal_is_taken_out_of_a_longer_sequence():
    assert sanitize("\x1b[1;8;31mx", colours=True) == "\x1b[1;31mx" + RESET


@pytest.mark.attack(48, 49)
def test_a_job_cannot_write_the_mark_of_the_platform():
    assert PLATFORM_MARK not in sanitize(f"{PLATFORM_MARK} tg-x completed", colours=True, lines=True)


def test_keys_and_values_at_every_depth():
    assert sanitize_all({"a\x1b": [{"b": "\x9b2J"}, 1, None, True]}) == {"a␛": [{"b": ""}, 1, None, True]}


@pytest.mark.attack(48)
@given(
    st.text(st.characters(codec=None)) | st.text("\x1b\x9b\x9d[];0m\x07\\?8AJ\x90P\x18\x1a\n\r"),
    st.booleans(),
    st.booleans(),
)
def test_no_text_whatever_leaves_a_control_character(text, colours, lines):
    shown = sanitize(text, colours, lines)
    allowed = "\n\t" if lines else ""
    for part in shown.split("\x1b[")[1:]:
        assert colours
        parameters, end, _ = part.partition("m")
        assert end
        assert set(parameters) <= set("0123456789;")
    for character in shown.replace("\x1b[", ""):
        assert character.isprintable() or character in allowed
