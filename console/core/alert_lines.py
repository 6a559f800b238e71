"""Alerts as lines."""

from collections.abc import Sequence

from console.core import line
from console.core.attention import Attention
from console.core.columns import Column, laid_out
from console.core.format import age
from console.core.line import BAD, Line, headed, joined, shortened, wrapped

_COLUMNS = (
    Column("level", "", 6, 6, 9),
    Column("subject", "WHAT", 12, 24, 9, grows=2),
    Column("since", "SINCE", 6, 6, 7, right=True),
    Column("text", "WHY", 20, 64, 9, grows=1),
    Column("advice", "NEXT", 20, 400, 5, grows=9),
)


def alert_head(cells: int) -> Line:
    return (("  ", line.TEXT), *laid_out(_COLUMNS, cells - 2).head())


def alert_line(item: Attention, here: bool, now_ms: int, cells: int) -> Line:
    row = laid_out(_COLUMNS, cells - 2).row(
        {
            "level": ("✖ bad" if item.tone == BAD else "! warn", item.tone),
            "subject": (item.subject, line.STRONG if here else line.TEXT),
            "since": (age(item.since_ms, now_ms), line.DIM),
            "text": (item.text, item.tone),
            "advice": (item.advice, line.DIM),
        }
    )
    return (("▌ " if here else "  ", line.ACCENT), *row)


def alert_in_full(item: Attention, cells: int, height: int) -> list[Line]:
    """What the columns of a list have no room for. However long the reason is, what to do has room."""
    why: list[Line] = [((f" {text}", item.tone),) for text in wrapped(item.text, cells - 2)]
    advice: list[Line] = [((f" {text}", line.TEXT),) for text in wrapped(item.advice, cells - 2) if text]
    return [headed(item.subject, "", cells), *shortened(why, max(height - 1 - len(advice), 1), cells), *advice]


def alert_summary(found: Sequence[Attention]) -> Line:
    bad = sum(item.tone == BAD for item in found)
    parts: list[Line] = [
        (("✖ ", line.BAD), (f"{bad} ", line.TEXT), ("bad", line.DIM)) if bad else (),
        (("! ", line.WARN), (f"{len(found) - bad} ", line.TEXT), ("to look at", line.DIM)) if len(found) > bad else (),
    ]
    shown = [part for part in parts if part]
    return ((" ", line.TEXT), *joined(shown, ("   ", line.TEXT))) if shown else ((" all is well", line.DIM),)
