"""A curve in one line of text."""

from schemas.rules.tfevents.curve import Curve

_BARS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "×"
GAP = " "


def sparkline(curve: Curve, cells: int) -> str:
    """The highest value of each step range, so that a spike shows. `×`: NaN or infinite; blank: nothing was logged."""
    ends = curve.step_range()
    if ends is None:
        return ""
    columns = curve.columns(*ends, cells)
    heights = [column.high for column in columns if column and column.low <= column.high]
    low, high = (min(heights), max(heights)) if heights else (0.0, 0.0)
    # Halves, because the span itself can be beyond what a float holds.
    span = high / 2 - low / 2
    marks = []
    for column in columns:
        if column is None:
            marks.append(GAP)
        elif column.bad:
            marks.append(NOT_FINITE)
        else:
            share = (column.high / 2 - low / 2) / span if span else 0.0
            marks.append(_BARS[min(int(share * len(_BARS)), len(_BARS) - 1)])
    return "".join(marks).rstrip()
