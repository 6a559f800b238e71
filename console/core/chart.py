"""A curve as lines of text: braille, blocks or ASCII; linear or logarithmic; with what is no number marked, not hidden.

Each dot column shows the least and the greatest value that fell into it, so that no spike disappears by decimation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from console.core import line
from console.core.line import Line, Span
from console.core.ticks import short, ticks, value_label

LABEL_CELLS = 9
_LEFT_DOTS = (0x01, 0x02, 0x04, 0x40)
_RIGHT_DOTS = (0x08, 0x10, 0x20, 0x80)
_GREATEST = 1e300  # beyond it the difference of two values is no number any more
_LEAST = 1e-30
_EIGHTHS = " ▁▂▃▄▅▆▇█"

Point = tuple[float, float]  # (step, value)


@dataclass(frozen=True, slots=True)
class ChartOptions:
    """cursor: share of the width from 0 to 1. first_step: what lies before it is not shown."""

    glyphs: str = "braille"
    log: bool = False
    cursor: float | None = None
    first_step: float | None = None
    tone: str = "series1"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the cursor is on."""

    step: float
    value: float


@dataclass(frozen=True, slots=True)
class _Plot:
    """Values of each dot column as (low, high) in axis units; columns that hold what is no number, and restarts."""

    columns: list[tuple[float, float] | None]
    odd: set[int]
    restarts: set[int]
    low: float
    high: float
    first: float
    last: float


def chart_lines(points: Sequence[Point], cells: int, height: int, options: ChartOptions) -> list[Line]:
    """height counts the two lines of the step axis."""
    wide, high = cells - LABEL_CELLS, height - 2
    if wide < 4 or high < 1:
        return []
    per_cell = 2 if options.glyphs == "braille" else 1
    plot = _plotted(points, wide * per_cell, options)
    if plot is None:
        return [((" no finite value yet", line.DIM),)]
    rows = _RASTERS.get(options.glyphs, _braille)(plot, wide, high)
    lines = [(*_label(plot, at, high, options.log), *_row(rows[at], at, wide, options)) for at in range(high)]
    return [*lines, _axis(plot, wide, per_cell), _steps(plot, wide)]


def reading_at(points: Sequence[Point], share: float, first_step: float | None = None) -> Reading | None:
    """The point nearest to the cursor."""
    shown = [point for point in points if first_step is None or point[0] >= first_step]
    if not shown:
        return None
    low, high = min(point[0] for point in shown), max(point[0] for point in shown)
    wanted = low + share * (high - low)
    step, value = min(shown, key=lambda point: abs(point[0] - wanted))
    return Reading(step, value)


def _plotted(points: Sequence[Point], dots: int, options: ChartOptions) -> _Plot | None:
    shown = [point for point in points if options.first_step is None or point[0] >= options.first_step]
    steps = [step for step, _ in shown if math.isfinite(step)]
    if not steps:
        return None
    first, last = min(steps), max(steps)
    # One over a distance of denormal numbers is infinite.
    scale = (dots - 1) / (last - first) if last - first > _LEAST else 0.0
    lows: list[float] = [math.inf] * dots
    highs: list[float] = [-math.inf] * dots
    odd: set[int] = set()
    restarts: set[int] = set()
    before = -math.inf
    for step, value in shown:
        if not math.isfinite(step):
            continue
        at = int((step - first) * scale)
        if step < before:
            restarts.add(at)
        before = step
        if options.log:
            value = math.log10(value) if value > 0 and math.isfinite(value) else math.nan
        if not math.isfinite(value):
            odd.add(at)
            continue
        value = min(max(value, -_GREATEST), _GREATEST)
        if value < lows[at]:
            lows[at] = value
        if value > highs[at]:
            highs[at] = value
    columns = [(low, highs[at]) if low <= highs[at] else None for at, low in enumerate(lows)]
    finite = [column for column in columns if column is not None]
    if not finite:
        return None
    low, high = min(column[0] for column in finite), max(column[1] for column in finite)
    if high - low < 1e-12 * max(abs(high), _LEAST):
        pad = max(abs(high) * 0.05, _LEAST) if high else 1.0
        low, high = low - pad, high + pad
    return _Plot(_bridged(columns, odd), odd, restarts, low, high, first, last)


def _bridged(columns: list[tuple[float, float] | None], odd: set[int]) -> list[tuple[float, float] | None]:
    """Between two columns with values a line is drawn, unless something that is no number lies there."""
    bridged = list(columns)
    known: int | None = None
    for at, column in enumerate(columns):
        if column is None:
            continue
        if known is not None and not any(known < gap <= at for gap in odd):
            before = columns[known]
            assert before is not None
            start, end = sum(before) / 2, sum(column) / 2
            for between in range(known + 1, at):
                value = start + (end - start) * (between - known) / (at - known)
                bridged[between] = (value, value)
        known = at
    return bridged


def _spans(plot: _Plot, dots_high: int) -> list[tuple[int, int] | None]:
    """Rows of dots, counted from the top, that each column covers; neighbours touch."""
    scale = (dots_high - 1) / (plot.high - plot.low)
    spans: list[tuple[int, int] | None] = []
    before: tuple[int, int] | None = None
    for column in plot.columns:
        if column is None:
            spans.append(None)
            before = None
            continue
        top = dots_high - 1 - round((column[1] - plot.low) * scale)
        bottom = dots_high - 1 - round((column[0] - plot.low) * scale)
        own = (top, bottom)
        if before is not None:
            if before[1] < top - 1:
                top = before[1] + 1
            elif before[0] > bottom + 1:
                bottom = before[0] - 1
        spans.append((top, bottom))
        before = own
    return spans


def _braille(plot: _Plot, wide: int, high: int) -> list[str]:
    bits = [bytearray(wide) for _ in range(high)]
    for at, span in enumerate(_spans(plot, high * 4)):
        if span is None:
            continue
        dots = _RIGHT_DOTS if at % 2 else _LEFT_DOTS
        for dot in range(span[0], span[1] + 1):
            bits[dot // 4][at // 2] |= dots[dot % 4]
    return ["".join(chr(0x2800 + bit) if bit else " " for bit in row) for row in bits]


def _block(plot: _Plot, wide: int, high: int) -> list[str]:
    rows = [[" "] * wide for _ in range(high)]
    scale = (high * 8 - 1) / (plot.high - plot.low)
    for at, column in enumerate(plot.columns):
        if column is None:
            continue
        eighths = 1 + round((column[1] - plot.low) * scale)
        for row in range(high):
            inside = min(max(eighths - (high - 1 - row) * 8, 0), 8)
            rows[row][at] = _EIGHTHS[inside]
    return ["".join(row) for row in rows]


def _ascii(plot: _Plot, wide: int, high: int) -> list[str]:
    rows = [[" "] * wide for _ in range(high)]
    for at, span in enumerate(_spans(plot, high)):
        if span is not None:
            for row in range(span[0], span[1] + 1):
                rows[row][at] = "*" if span[0] == span[1] else "|"
    return ["".join(row) for row in rows]


_RASTERS = {"braille": _braille, "block": _block, "ascii": _ascii}


def _label(plot: _Plot, at: int, high: int, log: bool) -> tuple[Span, ...]:
    every = max((high + 3) // 4, 2) if high > 3 else max(high - 1, 1)
    shown = at == high - 1 or (at % every == 0 and high - 1 - at >= 2)
    share = 1 - at / max(high - 1, 1)
    value = plot.low + (plot.high - plot.low) * share
    text = value_label(10**value if log else value, 0.0 if log else plot.high - plot.low) if shown else ""
    if log and shown:
        text = f"{10**value:.3g}"
    return ((f"{text[: LABEL_CELLS - 2]:>{LABEL_CELLS - 2}} ", line.DIM), ("┤" if shown else "│", line.RULE))


def _row(text: str, at: int, wide: int, options: ChartOptions) -> tuple[Span, ...]:
    if options.cursor is None:
        return ((text, options.tone),)
    column = min(int(options.cursor * (wide - 1) + 0.5), wide - 1)
    under = text[column] if text[column] != " " else "│"
    return ((text[:column], options.tone), (under, line.KEY), (text[column + 1 :], options.tone))


def _axis(plot: _Plot, wide: int, per_cell: int) -> Line:
    marks = {at // per_cell: "R" for at in plot.restarts} | {at // per_cell: "N" for at in plot.odd}
    spans: list[Span] = [(" " * (LABEL_CELLS - 1), line.TEXT), ("└", line.RULE)]
    run = ""
    for at in range(wide):
        if at in marks:
            spans += [(run, line.RULE), (marks[at], line.BAD if marks[at] == "N" else line.WARN)]
            run = ""
        else:
            run += "─"
    return (*spans, (run, line.RULE))


def _steps(plot: _Plot, wide: int) -> Line:
    text = [" "] * wide
    for value in ticks(plot.first, plot.last, max(wide // 12, 1)):
        at = round((value - plot.first) / (plot.last - plot.first) * (wide - 1)) if plot.last > plot.first else 0
        label = short(value)
        start = min(max(at - len(label) // 2, 0), wide - len(label))
        if start >= 0 and all(item == " " for item in text[max(start - 1, 0) : start + len(label) + 1]):
            text[start : start + len(label)] = label
    return ((" " * LABEL_CELLS, line.TEXT), ("".join(text), line.DIM))


def notes(points: Sequence[Point]) -> list[str]:
    """What the axis marks mean here: where values are no numbers, and where the run went back."""
    odd = [step for step, value in points if not math.isfinite(value)]
    said = []
    if odd:
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        said.append(f"N  NaN or infinite at step {odd[0]:,.0f}{more}")
    backs = [step for (before, _), (step, _) in pairwise(points) if step < before]
    if backs:
        more = f", {len(backs)} times" if len(backs) > 1 else ""
        said.append(f"R  went on from step {backs[-1]:,.0f} after a restart{more}")
    return said
