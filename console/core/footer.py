"""The last line: keys that work here."""

from collections.abc import Sequence

from console.actions import key_name
from console.core import line
from console.core.line import Line, Span, line_width, spread


def footer(shown: Sequence[tuple[Sequence[str], str, bool]], position: str, cells: int) -> Line:
    """shown: (keys, label, whether it may be done, else it is grey). What has no room is left out whole; the way
    back, `:` and `?` always have room."""
    right: tuple[Span, ...] = ((position, line.DIM), (" ", line.TEXT)) if position else ()
    room = cells - line_width(right) - 1
    items = [_item(keys, label, allowed) for keys, label, allowed in shown if keys]
    last = [item for item in items if item[0][0] in ("esc", "?", ":")]
    first = [item for item in items if item not in last]
    while first and sum(line_width(item) + 2 for item in (*first, *last)) > room:
        first.pop()
    spans: list[Span] = [(" ", line.TEXT)]
    for item in (*first, *last):
        spans += [*item, ("  ", line.TEXT)]
    return spread(tuple(spans), right, cells)


def _item(keys: Sequence[str], label: str, allowed: bool) -> tuple[Span, ...]:
    return ((key_name(keys[0]), line.KEY if allowed else line.DIM), (f" {label}", line.DIM))
