"""Curves of one group as the agents read them from its TensorBoard files, and why there are none."""

import math
from collections.abc import Mapping
from typing import Any

from console.core.chart import ChartOptions, chart_lines
from console.core.line import Line
from console.core.sanitize import sanitize

Point = tuple[float, float, float]  # (step, wall time in seconds, value); value may be NaN or infinite

# state -> what an empty chart says. They are different things, and an operator acts differently on each.
EMPTY_TEXTS = {
    "loading": "loading …",
    "no_log": "no TensorBoard log under the group's paths yet",
    "no_points": "a TensorBoard log is there, but no scalar was written yet",
    "probe_failed": "the node that holds the log does not answer; curves come back with it",
    "unreadable": "the TensorBoard log cannot be read",
    "no_route": "this agent has no curves yet",
    "unanswered": "no node answers",
    "refused": "the curves were refused",
}


class CurveStore:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = "loading"
        self.loss_tag: str | None = None
        self.text = ""
        self.tags: dict[str, list[Point]] = {}
        self.revision = 0
        self._painted: tuple[object, list[Line]] | None = None

    def take(self, value: Any) -> bool:
        """An answer of `/curves`. True where anything is new."""
        raw = value if isinstance(value, Mapping) else {}
        tags_raw = raw.get("tags")
        tags = {
            sanitize(str(tag)): points
            for tag, listed in (tags_raw.items() if isinstance(tags_raw, Mapping) else ())
            if (points := _points(listed))
        }
        loss_tag = raw.get("loss_tag")
        self.loss_tag = sanitize(loss_tag) if isinstance(loss_tag, str) else None
        state = str(raw.get("state") or ("live" if tags else "no_points"))
        return self._set(state, sanitize(str(raw.get("text") or "")), tags)

    def refused(self, status: int, code: str, message: str) -> bool:
        if status == 404 and code != "no_such_group":
            return self._set("no_route", "", self.tags)
        return self._set("refused", message, self.tags)

    def unanswered(self, tried: str) -> bool:
        return self._set("unanswered", tried, self.tags)

    def _set(self, state: str, text: str, tags: dict[str, list[Point]]) -> bool:
        if (state, text) == (self.state, self.text) and tags == self.tags:
            return False
        self.state, self.text, self.tags = state, text, tags
        self.revision += 1
        return True

    @property
    def empty_text(self) -> str:
        said = EMPTY_TEXTS.get(self.state, self.state)
        return f"{said}: {self.text}" if self.text else said

    def painted(self, tag: str, cells: int, height: int, options: ChartOptions) -> list[Line]:
        """Kept until points, size or options change: a chart walks over every point."""
        key = (self.revision, tag, cells, height, options)
        if self._painted is None or self._painted[0] != key:
            points = [(step, value) for step, _, value in self.tags[tag]]
            self._painted = (key, chart_lines(points, cells, height, options))
        return self._painted[1]

    def main_tag(self) -> str | None:
        """The loss, where a tag says so; else the first."""
        if self.loss_tag in self.tags:
            return self.loss_tag
        ranked = sorted(self.tags, key=lambda tag: (_unlikeliness(tag), tag))
        return ranked[0] if ranked else None

    def newest(self) -> Point | None:
        tag = self.main_tag()
        return self.tags[tag][-1] if tag else None


def _unlikeliness(tag: str) -> int:
    low = tag.lower()
    if low in ("loss", "train/loss", "training/loss", "train_loss"):
        return 0
    if "loss" in low:
        return 1 if "val" not in low and "eval" not in low else 2
    return 3


def _points(listed: object) -> list[Point]:
    if not isinstance(listed, list):
        return []
    points = []
    for item in listed:
        if isinstance(item, list | tuple) and len(item) == 3:
            step, wall, value = map(_number, item)
            if not math.isnan(step):
                points.append((step, wall, value))
    return points


def _number(value: object) -> float:
    """NaN and infinities come as text, because JSON has none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan
