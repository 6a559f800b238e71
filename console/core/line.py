"""A line of the screen as data: pieces of text, each with a tone. What colour a tone has is the theme's business."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from console.core.format import clipped, padded, width

Span = tuple[str, str]
Line = tuple[Span, ...]

# Tones. A state is never told by its tone alone: glyph, letter and word say the same.
TEXT, DIM, STRONG, TITLE, ACCENT, KEY = "text", "dim", "strong", "title", "accent", "key"
GOOD, BUSY, WAIT, WARN, BAD, RULE, MATCH = "good", "busy", "wait", "warn", "bad", "rule", "match"
SERIES = ("series1", "series2", "series3", "series4")
TONES = (TEXT, DIM, STRONG, TITLE, ACCENT, KEY, GOOD, BUSY, WAIT, WARN, BAD, RULE, MATCH, *SERIES)

EMPTY: Line = ()


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def line_width(line: Line) -> int:
    return sum(width(text) for text, _ in line)


def changed_cells(before: Line, after: Line, cells: int) -> tuple[int, int]:
    """First cell in which two lines differ, and the one behind the last; both lines end in spaces up to `cells`."""
    first, last = 0, cells
    for old, new in zip(before, after, strict=False):
        if old != new:
            if old[1] == new[1]:
                first += _common(old[0], new[0])
            break
        first += width(new[0])
    first = min(first, cells)
    if line_width(before) == (wide := line_width(after)) <= cells:
        last = wide
        for old, new in zip(reversed(before), reversed(after), strict=False):
            if old != new:
                if old[1] == new[1]:
                    last -= _common(old[0][::-1], new[0][::-1])
                break
            last -= width(new[0])
    return first, max(last, first)


def _common(one: str, other: str) -> int:
    """Characters with which both begin; of text with wide ones none, so that no half of one is cut off."""
    if not (one.isascii() and other.isascii()):
        return 0
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def between(line: Line, first: int, last: int) -> Line:
    """What stands in the cells from first up to last; spaces behind the end of the line, and where a wide character is
    halved."""
    part: list[Span] = []
    at = 0
    for text, tone in line if first < last else EMPTY:
        if at >= last:
            break
        wide = width(text)
        if at + wide > first:
            inside = first <= at and at + wide <= last
            part.append((text if inside else _cells(text, max(first - at, 0), last - at), tone))
        at += wide
    missing = last - max(at, first)
    return (*part, (" " * missing, TEXT)) if missing > 0 else tuple(part)


def _cells(text: str, first: int, last: int) -> str:
    if text.isascii():
        return text[first:last]
    kept: list[str] = []
    at = 0
    for item in text:
        wide = width(item)
        if first <= at and at + wide <= last:
            kept.append(item)
        elif at < last and at + wide > first:
            kept.append(" ")
        at += wide
    return "".join(kept)


def cut(line: Line, cells: int) -> Line:
    """At most `cells` wide; what does not fit ends in an ellipsis, and no wide character is halved."""
    if cells <= 0:
        return EMPTY
    kept: list[Span] = []
    left = cells
    for at, (text, tone) in enumerate(line):
        used = width(text)
        if used < left or (used == left and not any(rest for rest, _ in line[at + 1 :])):
            kept.append((text, tone))
            left -= used
            continue
        kept.append((clipped(text + "…" if used == left else text, left), tone))
        break
    return tuple(kept)


def exactly(line: Line, cells: int) -> Line:
    line = cut(line, cells)
    missing = cells - line_width(line)
    return (*line, (" " * missing, TEXT)) if missing > 0 else line


def spread(left: Line, right: Line, cells: int) -> Line:
    """Left and right parts with the space between them; where both do not fit the left one is cut, and stays apart.
    The right one has no more than half where the left one needs it."""
    right = cut(right, max(cells - line_width(left) - 1, cells // 2))
    room = cells - line_width(right)
    return (*exactly(cut(left, room - 1) if right else left, room), *right)


def joined(parts: Iterable[Line], separator: Span = ("  ", TEXT)) -> Line:
    spans: list[Span] = []
    for part in parts:
        if part:
            spans += [separator, *part] if spans else part
    return tuple(spans)


def beside(
    left: Sequence[Line], right: Sequence[Line], left_cells: int, right_cells: int, rule: str = "│"
) -> list[Line]:
    """Two blocks side by side with a rule between them."""
    height = max(len(left), len(right))
    blank: Line = EMPTY
    return [
        (
            *exactly(left[at] if at < len(left) else blank, left_cells),
            (f" {rule} ", RULE),
            *exactly(right[at] if at < len(right) else blank, right_cells),
        )
        for at in range(height)
    ]


def broken(line: Line, cells: int) -> list[Line]:
    """A sentence over as many lines as it takes. What has columns was made to fit, and stays one line."""
    if len(line) != 1 or line_width(line) <= cells:
        return [line]
    ((text, tone),) = line
    return [((part, tone),) for part in wrapped(text, cells)]


def flowed(parts: Iterable[Line], cells: int, gap: int = 2) -> list[Line]:
    """Parts one after the other, on a new line where there is no room; none is broken."""
    lines: list[list[Line]] = []
    used = 0
    for part in parts:
        wide = line_width(part)
        if not lines or used + gap + wide > cells:
            lines.append([part])
            used = wide
        else:
            lines[-1].append(part)
            used += gap + wide
    return [joined(row, (" " * gap, TEXT)) for row in lines]


def hung(head: Line, text: str, tone: str, cells: int) -> list[Line]:
    """A text behind a head; what has no room there stands below its beginning."""
    indent = line_width(head)
    first, *more = wrapped(text, max(cells - indent, 10))
    return [(*head, (first, tone)), *(((" " * indent, TEXT), (part, tone)) for part in more)]


def shortened(lines: Sequence[Line], most: int, cells: int) -> list[Line]:
    """At most so many; where there are more, the last one ends in a sign that says so."""
    kept = list(lines[: max(most, 0)])
    if kept and len(lines) > len(kept):
        kept[-1] = cut((*kept[-1], ("…", kept[-1][-1][1] if kept[-1] else DIM)), cells)
    return kept


def headed(name: str, aside: str, cells: int) -> Line:
    """A rule across the screen with a name in it, which leaves room for what stands beside it."""
    name = clipped(name, max(cells - width(aside) - 8, 12))
    head: Line = (("─ ", RULE), (name, STRONG), (f"  {aside} " if aside else " ", DIM))
    return cut((*head, ("─" * max(cells - line_width(head), 0), RULE)), cells)


def cell(text: str, cells: int, tone: str = TEXT, right: bool = False) -> Span:
    return (_fitted(text, cells, right), tone)


@lru_cache(4096)
def _fitted(text: str, cells: int, right: bool) -> str:
    """Most cells of a table are as they were at the last repaint, or as those of other rows."""
    return padded(clipped(text, cells), cells, right)


def wrapped(text: str, cells: int) -> list[str]:
    """Broken at spaces where there are some; never wider than `cells`."""
    cells = max(cells, 2)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        current = ""
        for word in paragraph.split(" "):
            while width(word) > cells:
                if current:
                    lines.append(current)
                    current = ""
                head = _head(word, cells)
                lines.append(head)
                word = word[len(head) :]
            candidate = f"{current} {word}" if current else word
            if width(candidate) > cells:
                lines.append(current)
                current = word
            else:
                current = candidate
        lines.append(current)
    return lines


def _head(text: str, cells: int) -> str:
    used = 0
    for at, item in enumerate(text):
        used += width(item)
        if used > cells:
            return text[:at]
    return text
