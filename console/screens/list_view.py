"""A screen whose main part is a list with a cursor that stays with its row, whatever else comes, goes or moves."""

from textual.app import ComposeResult

from console.actions import Action
from console.core import line
from console.core.line import Line, shortened, wrapped
from console.core.row_filter import RowFilter, row_filter
from console.screens.view import ViewScreen
from console.widgets.line_view import FixedLines, LineView
from console.widgets.prompt import Prompt

EMPTY_LINES = 6  # that a sentence may take where there are no rows
NO_FILTER = row_filter("", ())


def empty_line(said: str, at: int, cells: int) -> Line:
    """Of EMPTY_LINES: why there is nothing to be seen."""
    lines = wrapped(said, max(cells - 3, 1))
    return (("  ", line.TEXT), (lines[at], line.DIM)) if at < len(lines) else line.EMPTY


class ListScreen(ViewScreen):
    """Sub-classes give `row_ids` (ordered and filtered; the same list object: nothing moved), `row` (one line) and
    `column_lines` (the line above). A list that can be sorted names its `orders`; sort: the one in use."""

    fields: tuple[str, ...] = ()
    feed = "watch"  # of the session, by which its rows come
    tick_s = 0.4  # nobody reads forty changing rows faster, and with the feed's pace a value is seen within a second

    def __init__(self, sort: str = "") -> None:
        super().__init__()
        self.here: str | None = None
        self.filter: RowFilter = NO_FILTER
        self.sort, self.turned, self.problems_only = sort, False, False
        self._filter_before = ""
        self._at = 0
        self._touched = False  # until someone moves it the cursor stays at the top
        self._ids: list[str] = []

    # What sub-classes say

    def row_ids(self) -> list[str]:
        raise NotImplementedError

    def row(self, row_id: str, cells: int) -> Line:
        raise NotImplementedError

    def orders(self) -> list[str]:
        return []

    def column_lines(self, cells: int) -> list[Line]:
        return []

    def status_lines(self, cells: int) -> list[Line]:
        return []

    def empty_text(self) -> str:
        return "nothing here"

    # Lines of the main view

    def count(self) -> int:
        return len(self._ids) or EMPTY_LINES

    def line(self, at: int, cells: int) -> Line:
        if not self._ids:
            return empty_line(self._empty(), at, cells)
        return self.row(self._ids[at], cells) if at < len(self._ids) else line.EMPTY

    def is_known(self) -> bool:
        """Whether what the list shows was ever read: what nobody knows is not counted as none."""
        return self.session.mesh.loaded

    def _status(self, cells: int) -> list[Line]:
        return self.status_lines(cells) if self.is_attached and self.is_known() else []

    def _empty(self) -> str:
        if not self.is_known():
            return self.session.trouble_in_full or self.session.refused.get(self.feed) or "connecting …"
        if self.filter.terms:
            return f"no row holds {self.filter.words!r}; esc shows all again"
        return self.empty_text()

    # Screen

    def body(self) -> ComposeResult:
        yield LineView(FixedLines(self._status), id="status", base="bar")
        yield LineView(
            FixedLines(lambda cells: self.column_lines(cells) if self.is_attached else []), id="columns", base="bar"
        )
        yield LineView(self, id="main")

    def row_in_full(self, cells: int, height: int) -> list[Line]:
        """Below the list: what the columns have no room for, of the row under the cursor."""
        return []

    def in_full(self) -> LineView:
        return LineView(FixedLines(self._in_full_lines), id="in-full", base="text")

    def _in_full_lines(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        height = self.query_one("#in-full", LineView).size.height
        return shortened(self.row_in_full(cells, height), height, cells)

    def take(self, groups: set[str], mesh: bool) -> None:
        """What changed, also while another screen is on top."""

    def flush(self, groups: set[str] | None, mesh: bool) -> None:
        super().flush(groups, mesh)
        before = self._ids
        self.reorder()
        if not groups or mesh or before is not self._ids or not groups.isdisjoint(self.rows_in_sight()):
            self.paint()
        else:
            self.paint_others()

    def rows_in_sight(self) -> list[str]:
        top = self.main.scroll_offset.y
        return self._ids[top : top + self.main.size.height]

    def paint(self) -> None:
        self.main.repaint()
        self.query_one("#columns", LineView).repaint()
        self.paint_others()

    def paint_others(self) -> None:
        """What may change though no row in sight did."""
        self.query_one("#status", LineView).repaint()
        self._paint_in_full()

    def _paint_in_full(self) -> None:
        for view in self.query("#in-full").results(LineView):
            view.repaint()

    def reorder(self) -> None:
        """The rows anew; the cursor stays with its row, or where it was if that row left."""
        ids = self.row_ids()
        if ids is self._ids and self.here is not None:
            return
        self._ids = ids
        if not self._touched and self._ids:
            self.here = self._ids[0]
        if self.here in self._ids:
            self._at = self._ids.index(self.here)
        elif self._ids:
            self._at = min(self._at, len(self._ids) - 1)
            self.here = self._ids[self._at]
        else:
            self._at, self.here = 0, None
        self.main.cursor = self._at if self._ids else None
        if self._ids:
            self.main.keep_in_sight(self._at)
        self.cursor_moved()
        self.refoot()

    def move(self, lines: int) -> None:
        if not self._ids:
            return
        self._touched = True
        self._at = min(max(self._at + lines, 0), len(self._ids) - 1)
        self.here = self._ids[self._at]
        self.main.cursor = self._at
        self.main.keep_in_sight(self._at)
        self.main.repaint()
        self.cursor_moved()
        self.refoot()

    def cursor_moved(self) -> None:
        """The cursor may be on another row."""
        self._paint_in_full()

    def on_line_view_picked(self, event: LineView.Picked) -> None:
        if event.view is self.main and event.at < len(self._ids):
            self.move(event.at - self._at)

    def position(self) -> str:
        where = f"{self._at + 1:,}/{len(self._ids):,}" if self._ids else ""
        return f"/{self.filter.words}   {where}" if self.filter.terms else where

    def enabled(self, action: Action) -> bool:
        if action.name == "back":
            return bool(self.filter.terms) or self.scope != "groups"
        if action.name in ("open", "cordon", "drain"):
            return bool(self._ids)
        return super().enabled(action)

    # Filter

    def set_filter(self, words: str) -> None:
        self.filter = row_filter(words, self.fields)
        self.all_anew()

    def all_anew(self) -> None:
        """Other rows, or in another order."""
        if self.ready:
            self.reorder()
            self.paint()
            self.refoot()

    def do_filter(self) -> None:
        self._filter_before = self.filter.words
        self.query_one(Prompt).ask("/", self.filter.words, self._filter_done, changed=self.set_filter)

    def _filter_done(self, text: str | None) -> None:
        if text is not None:
            self.set_filter(text)

    def do_back(self) -> None:
        if self.filter.terms:
            self.set_filter("")
        else:
            super().do_back()

    # Order

    def _sort_by(self, step: int) -> None:
        names = self.orders()
        at = names.index(self.sort) if self.sort in names else 0
        self.sort, self.turned = names[(at + step) % len(names)], False
        self.all_anew()

    def do_sort_right(self) -> None:
        self._sort_by(1)

    def do_sort_left(self) -> None:
        self._sort_by(-1)

    def do_sort_turn(self) -> None:
        self.turned = not self.turned
        self.all_anew()

    def do_problems(self) -> None:
        self.problems_only = not self.problems_only
        self.all_anew()
