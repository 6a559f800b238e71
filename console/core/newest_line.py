"""The newest step and loss of a group in one line: of its curve, or as its node last said."""

from typing import TYPE_CHECKING

from console.core import line
from console.core.format import UNKNOWN, age
from console.core.group_list import Progress, value_text
from console.core.line import Line

if TYPE_CHECKING:
    from console.store.curve_store import CurveStore


def newest_line(curves: "CurveStore | None", progress: Progress | None, now_ms: int) -> Line:
    """Empty where neither knows a step."""
    newest = curves.newest() if curves is not None else None
    if curves is not None and newest is not None:
        step, wall, value = newest
        return _said(step, str(curves.main_tag()), value, int(wall * 1000), now_ms)
    if progress is not None and progress.step is not None:
        return _said(progress.step, "loss", progress.loss, progress.at_ms, now_ms)
    return ()


def _said(step: float, name: str, value: float | None, at_ms: int | None, now_ms: int) -> Line:
    return (
        ("step ", line.DIM),
        (f"{step:,.0f}", line.STRONG),
        (f"   {name} ", line.DIM),
        (value_text(value), line.STRONG if value == value else line.BAD),
        (f"   {age(at_ms, now_ms)} ago" if at_ms is not None else f"   {UNKNOWN}", line.DIM),
    )
