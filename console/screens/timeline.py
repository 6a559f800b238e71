"""What each rank did when, over all attempts."""

from textual.app import ComposeResult

from console.actions import Action
from console.core import line
from console.core.event_lines import clock, event_log, tone_of
from console.core.group_list import mark_and_why
from console.core.line import Line, spread
from console.core.marks import QUIET, STALLED
from console.core.rank_table import odd_ones
from console.core.timeline import NoStep, Window, axis_line, lanes_of, legend_line, timeline_lines, whole_window
from console.screens.group_view import GroupScreen
from console.store.rows import Group, Task
from console.widgets.line_view import FixedLines, LineView

LEAST_WINDOW_MS = 2000


class TimelineScreen(GroupScreen):
    scope = "timeline"
    title_text = "timeline"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._window: Window | None = None  # None: everything, growing with time
        self._cursor: float | None = None

    def body(self) -> ComposeResult:
        yield LineView(FixedLines(lambda cells: [legend_line()]), id="status", base="bar")
        yield LineView(FixedLines(self._axis), id="columns", base="bar")
        yield LineView(FixedLines(self._lanes), id="main")
        yield LineView(FixedLines(self._under_cursor), id="reading", base="bar")

    def _shown_window(self) -> Window | None:
        group = self.target()
        if self._window is not None:
            return self._window
        return whole_window(group, self.session.now_ms()) if group is not None else None

    def _axis(self, cells: int) -> list[Line]:
        window = self._shown_window() if self.is_attached else None
        return [axis_line(window, cells)] if window is not None else []

    def _lanes(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        group, known, window = self.target(), self.known, self._shown_window()
        if group is None or known is None or window is None or not known.loaded:
            return [((" loading …", line.DIM),)]
        if not known.tasks:
            return [((" no attempt yet: no card was bound to it so far", line.DIM),)]
        lanes = lanes_of(group, known.tasks, known.events, self._no_step(group, known.ranks(group.attempt)))
        now = self.session.now_ms()
        lines = timeline_lines(lanes, window, now, cells, self._cursor)
        events = event_log(known.events, now, cells)
        return [*lines, line.EMPTY, ((" events", line.TITLE), ("  UTC, newest first", line.DIM)), *events]

    def _no_step(self, group: Group, tasks: list[Task]) -> NoStep | None:
        mesh = self.session.mesh
        progress, now = mesh.progress.get(group.id), mesh.ranks.get(group.id, {})
        mark, _ = mark_and_why(group, progress)
        if progress is None or progress.at_ms is None or mark not in (STALLED, QUIET):
            return None
        odd, idle = odd_ones(tasks, now)
        return NoStep(progress.at_ms, mark, frozenset(task.rank for task in odd), "idle" if idle else "busy")

    def _under_cursor(self, cells: int) -> list[Line]:
        """The event nearest to the cursor; without one the newest."""
        known, window = (self.known, self._shown_window()) if self.is_attached else (None, None)
        if known is None or window is None or not known.events:
            return []
        if self._cursor is None:
            event = known.events[-1]
            aside = "← → move the cursor "
        else:
            at_ms = window.begin_ms + round(self._cursor * window.length_ms)
            event = min(known.events, key=lambda item: abs((item.at_ms or 0) - at_ms))
            aside = f"cursor {clock(at_ms)} UTC "
        left: Line = ((f" {clock(event.at_ms)}  ", line.DIM), (event.text, tone_of(event.kind)))
        return [spread(left, ((aside, line.DIM),), cells)]

    def enabled(self, action: Action) -> bool:
        if action.name == "whole":
            return self._window is not None or self._cursor is not None
        return super().enabled(action)

    def flush(self, groups: set[str] | None, mesh: bool) -> None:
        super().flush(groups, mesh)
        self._paint()

    def _paint(self) -> None:
        for name in ("#columns", "#main", "#reading"):
            self.query_one(name, LineView).repaint()
        self.refoot()

    def _zoom(self, factor: float) -> None:
        window, group = self._shown_window(), self.target()
        if window is None or group is None:
            return
        whole = whole_window(group, self.session.now_ms())
        length = min(max(int(window.length_ms * factor), LEAST_WINDOW_MS), whole.length_ms)
        share = self._cursor if self._cursor is not None else 1.0
        middle = window.begin_ms + int(window.length_ms * share)
        begin = max(middle - int(length * share), whole.begin_ms)
        self._window = None if length >= whole.length_ms else Window(begin, begin + length)
        self._paint()

    def do_zoom_in(self) -> None:
        self._zoom(0.5)

    def do_zoom_out(self) -> None:
        self._zoom(2.0)

    def do_whole(self) -> None:
        self._window, self._cursor = None, None
        self._paint()

    def _step(self, share: float) -> None:
        cursor = (self._cursor if self._cursor is not None else 1.0) + share
        if self._window is not None and not 0 <= cursor <= 1:
            shift = int(self._window.length_ms * 0.25) * (1 if cursor > 1 else -1)
            self._window = Window(self._window.begin_ms + shift, self._window.end_ms + shift)
        self._cursor = min(max(cursor, 0.0), 1.0)
        self._paint()

    def do_left(self) -> None:
        self._step(-0.02)

    def do_right(self) -> None:
        self._step(0.02)
