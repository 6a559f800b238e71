"""The page one leaves open: every group, problems first, and the one under the cursor in more detail below."""

from collections.abc import Hashable

from textual import events
from textual.app import ComposeResult

from console.actions import Action
from console.core import group_list, line
from console.core.columns import Layout
from console.core.group_list import ORDERS, head_line, layout, order_key, row_line
from console.core.group_pane import pane_lines
from console.core.header import status_counts
from console.core.line import Line, line_width, spread
from console.screens.group_rows import GroupRows
from console.store.rows import Group
from console.widgets.line_view import FixedLines, LineView

PANE_LEAST_LINES = 30
RESORT_MS = 60_000


class GroupsScreen(GroupRows):
    scope = "groups"
    title_text = "groups"

    def __init__(self) -> None:
        super().__init__("status")
        self._sorted_at_ms = 0
        self._shape: tuple[tuple[int, bool, tuple[int, ...]], Layout] | None = None

    def body(self) -> ComposeResult:
        yield from super().body()
        yield LineView(FixedLines(self._pane_lines), id="pane", base="text")

    # Rows

    def follow(self, changed: set[str] | None) -> bool:
        now = self.session.now_ms()
        if changed is None or abs(now - self._sorted_at_ms) > RESORT_MS:
            self._sorted_at_ms, changed = now, None
        return super().follow(changed)

    def key(self, group: Group) -> Hashable | None:
        progress = self.session.mesh.progress.get(group.id)
        if (self.problems_only and not group_list.needs_a_hand(group, progress)) or not self.matches(group):
            return None
        key: Hashable = order_key(self.sort, group, progress, self._sorted_at_ms)
        return key

    def text_widths(self, group: Group) -> dict[str, int]:
        return group_list.text_widths(group)

    def orders(self) -> list[str]:
        return [column.name for column, _ in self._layout(self.main.size.width).columns if column.name in ORDERS]

    def _layout(self, cells: int) -> Layout:
        # Once there, the columns stay: a table that jumps when the last run ends cannot be read.
        with_progress = bool(self.session.mesh.progress) or (self._shape is not None and self._shape[0][1])
        key = (cells, with_progress, tuple(self.widths.values()))
        if self._shape is None or self._shape[0] != key:
            self._shape = (key, layout(cells, with_progress, self.widths))
        return self._shape[1]

    def row(self, row_id: str, cells: int) -> Line:
        mesh = self.session.mesh
        group = mesh.groups.get(row_id)
        if group is None:
            return line.EMPTY
        return row_line(
            self._layout(cells),
            group,
            self.session.now_ms(),
            here=row_id == self.here,
            marked=row_id in self.console.marked,
            stale=bool(self.session.silent_s),
            progress=mesh.progress.get(row_id),
        )

    def column_lines(self, cells: int) -> list[Line]:
        return [head_line(self._layout(cells), self.sort, not self.turned)]

    def status_lines(self, cells: int) -> list[Line]:
        right: list[tuple[str, str]] = []
        if self.problems_only:
            right += [("problems only ", line.WARN)]
        if self.filter.terms:
            right += [(f"/{self.filter.words} ", line.KEY)]
        right += self.marks_told()
        room = cells - line_width(tuple(right)) - 2
        left = ((" ", line.TEXT), *status_counts(self.session.mesh.counts(), self.session.mesh.stalled(), room))
        return [spread(left, tuple(right), cells)]

    def empty_text(self) -> str:
        if self.problems_only:
            return "no group needs a hand; z shows all again"
        return "no groups yet: heteroflow submit FILE makes one"

    # Pane

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < PANE_LEAST_LINES, "short")

    def _pane_lines(self, cells: int) -> list[Line]:
        if not self.is_attached or not self.here:
            return []
        group = self.session.mesh.groups.get(self.here)
        view = self.query_one("#pane", LineView)
        if group is None:
            return []
        return pane_lines(
            group,
            self.session.focus,
            self.session.curves,
            self.session.mesh.ranks.get(self.here, {}),
            self.session.now_ms(),
            cells,
            view.size.height,
            self.console.glyphs,
            self.session.mesh.progress.get(self.here),
        )

    def paint(self) -> None:
        super().paint()
        self.query_one("#pane", LineView).repaint()

    def cursor_moved(self) -> None:
        shown = self.query_one("#pane", LineView).size.height > 0
        self.session.focus_on(self.here if shown else None)
        self.session.watch_curves(self.here if shown else None)
        self.query_one("#pane", LineView).repaint()

    def do_pane(self) -> None:
        self.toggle_class("no-pane")
        self.call_after_refresh(self.cursor_moved)

    # Actions

    def enabled(self, action: Action) -> bool:
        if action.name == "back" and self.problems_only:
            return True
        return super().enabled(action)

    def do_back(self) -> None:
        if self.problems_only and not self.filter.terms and not self.console.marked:
            self.do_problems()
        else:
            super().do_back()
