"""Curves of a group: one tag at a time, linear or logarithmic, with a cursor that reads values."""

from textual.app import ComposeResult

from console.actions import Action
from console.core import line
from console.core.chart import ChartOptions, notes, reading_at
from console.core.format import age
from console.core.group_list import value_text
from console.core.line import Line, spread, wrapped
from console.screens.group_view import GroupScreen
from console.widgets.line_view import FixedLines, LineView

GLYPHS = ("braille", "block", "ascii")


class CurveScreen(GroupScreen):
    scope = "curve"
    title_text = "curves"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._tag: str | None = None
        self._log = False
        self._tail = False
        self._cursor: float | None = None

    def body(self) -> ComposeResult:
        yield LineView(FixedLines(self._status), id="status", base="bar")
        yield LineView(FixedLines(self._chart), id="main")
        yield LineView(FixedLines(self._notes), id="reading", base="bar")

    def on_mount(self) -> None:
        self.session.watch_curves(self.group_id)

    @property
    def tag(self) -> str | None:
        curves = self.session.curves
        return self._tag if self._tag in curves.tags else curves.main_tag()

    def _points(self) -> list[tuple[float, float]]:
        tag = self.tag
        return [(step, value) for step, _, value in self.session.curves.tags[tag]] if tag is not None else []

    def _first_step(self) -> float | None:
        points = self._points()
        if not self._tail or not points:
            return None
        steps = [step for step, _ in points]
        return max(steps) - (max(steps) - min(steps)) / 10

    def _status(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        curves, tag = self.session.curves, self.tag
        if tag is None:
            return [((f" {curves.empty_text}", line.DIM),)]
        step, wall, value = curves.tags[tag][-1]
        names = sorted(curves.tags)
        left: Line = (
            (f" {tag}", line.STRONG),
            (f"  {names.index(tag) + 1} of {len(names)}", line.DIM),
            ("   step ", line.DIM),
            (f"{step:,.0f}", line.TEXT),
            ("   value ", line.DIM),
            (value_text(value), line.TEXT if value == value else line.BAD),
            (f"   {age(int(wall * 1000), self.session.now_ms())} ago", line.DIM),
        )
        how = "  ".join(
            said
            for said, on in (
                ("log axis", self._log),
                ("last tenth", self._tail),
                (curves.empty_text, curves.state in ("probe_failed", "unanswered")),
            )
            if on
        )
        return [spread(left, ((how + " ", line.WARN if curves.state != "live" else line.KEY),), cells)]

    def _chart(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        points = self._points()
        height = self.main.size.height
        if not points:
            said = wrapped(self.session.curves.empty_text, max(cells - 6, 1))
            return [*[line.EMPTY] * (height // 3), *(((f"   {text}", line.DIM),) for text in said)]
        options = ChartOptions(self.console.glyphs, self._log, self._cursor, self._first_step())
        tag = self.tag
        assert tag is not None
        return [line.EMPTY, *self.session.curves.painted(tag, cells - 1, height - 1, options)]

    def _notes(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        points = self._points()
        said = "   ".join(notes(points))
        if not points:
            return []
        reading = reading_at(points, self._cursor, self._first_step()) if self._cursor is not None else None
        right = (
            f"step {reading.step:,.0f}   {value_text(reading.value)} " if reading is not None else "← → read values "
        )
        return [spread(((f" {said}", line.WARN),), ((right, line.KEY if reading is not None else line.DIM),), cells)]

    def enabled(self, action: Action) -> bool:
        if action.name in ("next_tag", "previous_tag"):
            return len(self.session.curves.tags) > 1
        if action.name in ("log_axis", "tail", "glyphs"):
            return self.tag is not None
        if action.name == "whole":
            return self._tail or self._cursor is not None
        return super().enabled(action)

    def flush(self, groups: set[str] | None, mesh: bool) -> None:
        super().flush(groups, mesh)
        self._paint()

    def _paint(self) -> None:
        for name in ("#status", "#main", "#reading"):
            self.query_one(name, LineView).repaint()
        self.refoot()

    def _turn(self, step: int) -> None:
        names = sorted(self.session.curves.tags)
        if names:
            tag = self.tag
            self._tag = names[((names.index(tag) if tag in names else 0) + step) % len(names)]
            self._paint()

    def do_next_tag(self) -> None:
        self._turn(1)

    def do_previous_tag(self) -> None:
        self._turn(-1)

    def do_log_axis(self) -> None:
        self._log = not self._log
        self._paint()

    def do_tail(self) -> None:
        self._tail = not self._tail
        self._paint()

    def do_glyphs(self) -> None:
        self.console.glyphs = GLYPHS[(GLYPHS.index(self.console.glyphs) + 1) % len(GLYPHS)]
        self._paint()

    def do_whole(self) -> None:
        self._tail, self._cursor = False, None
        self._paint()

    def _step(self, share: float) -> None:
        self._cursor = min(max((self._cursor if self._cursor is not None else 1.0) + share, 0.0), 1.0)
        self._paint()

    def do_left(self) -> None:
        self._step(-0.01)

    def do_right(self) -> None:
        self._step(0.01)
