"""Which columns a terminal's width has room for, and how wide each one is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from console.core.line import Line, Span, cell

GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """least, most: cells; a column takes more than its least only where room is left, in the order of `grows`.
    keep: columns of the lowest number go first when room is short; 9 always stays."""

    name: str
    head: str
    least: int
    most: int
    keep: int
    right: bool = False
    grows: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Each shown column with its cells."""

    columns: tuple[tuple[Column, int], ...]

    def row(self, cells: dict[str, Span]) -> Line:
        """Neighbours of one tone are one span, and a gap belongs to the cell before it: painting costs by the span."""
        spans: list[Span] = []
        for column, wide in self.columns:
            said, wanted = cells.get(column.name, ("", "text"))
            text, tone = cell(said, wide, wanted, column.right)
            if spans:
                before, tone_before = spans[-1]
                before += " " * GAP
                if tone == tone_before:
                    text = before + text
                    spans.pop()
                else:
                    spans[-1] = (before, tone_before)
            spans.append((text, tone))
        return tuple(spans)

    def head(self, marks: dict[str, str] | None = None, tone: str = "dim") -> Line:
        """marks: a sign behind a column's name, for the order."""
        marks = marks or {}
        return self.row({column.name: (column.head + marks.get(column.name, ""), tone) for column, _ in self.columns})


def fitted(columns: Sequence[Column], widths: Mapping[str, int]) -> list[Column]:
    """No column is wider than what stands in it, by its name in `widths`, and its head with a mark: the room goes to
    those that have more to say. One of numbers is not narrower either: a number that is cut is another number."""
    return [_fitted(column, widths[column.name]) if column.name in widths else column for column in columns]


def _fitted(column: Column, text_cells: int) -> Column:
    most = max(text_cells, len(column.head) + 1)
    if column.right:
        return replace(column, least=most, most=most)
    return replace(column, least=min(column.least, most), most=min(column.most, most))


def laid_out(columns: Sequence[Column], width: int) -> Layout:
    shown = list(columns)
    while len(shown) > 1 and _least(shown) > width:
        weakest = min(shown, key=lambda column: column.keep)
        if weakest.keep >= 9:
            break
        shown.remove(weakest)
    wide = {column.name: column.least for column in shown}
    left = width - _least(shown)
    for column in sorted(shown, key=lambda column: column.grows):
        if left <= 0:
            break
        more = min(column.most - column.least, left)
        wide[column.name] += more
        left -= more
    return Layout(tuple((column, wide[column.name]) for column in shown))


def _least(columns: Sequence[Column]) -> int:
    return sum(column.least for column in columns) + GAP * (len(columns) - 1)
