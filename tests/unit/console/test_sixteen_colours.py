"""Which colours there are to paint with: told as Rich, which paints, tells it."""

import io

import pytest
from rich.console import Console

from console.cli.console import sixteen_colours

TERMS = "xterm screen linux xterm-16color xterm-256color tmux-256color xterm-kitty".split()


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("colorterm", ["", "truecolor", "24bit"])
def test_sixteen_colours_are_what_rich_calls_standard(term: str, colorterm: str):
    environment = {"TERM": term, "COLORTERM": colorterm}
    painter = Console(file=io.StringIO(), force_terminal=True, _environ=environment)
    assert sixteen_colours(environment) == (painter.color_system == "standard")
