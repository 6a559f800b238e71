"""Curves as JSON: what `heteroflow curves --json` prints."""

from math import isfinite
from typing import TypedDict

from schemas.rules.tfevents.curve import Curve, Point
from schemas.rules.tfevents.run_state import RunState
from schemas.rules.tfevents.run_tree import RunTree

JsonNumber = float | str


class TagReport(TypedDict):
    """n: points kept. first, last: [step, value], None where nothing is kept. nan: NaN and infinities among them.
    superseded: points that a later start of the run took back."""

    n: int
    first: tuple[int, JsonNumber] | None
    last: tuple[int, JsonNumber] | None
    nan: int
    superseded: int


class CurvesReport(TypedDict):
    state: str
    tags: dict[str, TagReport]


def json_number(value: float) -> JsonNumber:
    """JSON has no NaN and no infinity: they are texts, `NaN`, `Infinity`, `-Infinity`."""
    if isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def curves_report(tree: RunTree, state: RunState) -> CurvesReport:
    return {"state": state.state, "tags": {item.name: _tag_report(item.curve) for item in tree.curves()}}


def _tag_report(curve: Curve) -> TagReport:
    return {
        "n": len(curve),
        "first": _pair(curve.first),
        "last": _pair(curve.last),
        "nan": curve.nonfinite,
        "superseded": curve.superseded,
    }


def _pair(point: Point | None) -> tuple[int, JsonNumber] | None:
    return None if point is None else (point.step, json_number(point.value))
