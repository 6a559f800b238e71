"""The one widget that puts lines on the screen. It asks a painter for the lines in sight, and sends only the cells that
differ from what is shown: Textual repaints whole regions, and its own tables repaint everything for one changed cell.
"""

from collections.abc import Callable
from typing import Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.core.line import EMPTY, Line, between, changed_cells, cut, line_width
from console.core.sanitize import sanitize


class Lines(Protocol):
    """What a LineView shows: `count` lines, of which `line` paints one for a width."""

    def count(self) -> int: ...

    def line(self, at: int, cells: int) -> Line: ...


class FixedLines:
    """Lines that are painted all at once, at each repaint of the view; `paint(cells)` gives them."""

    def __init__(self, paint: Callable[[int], list[Line]], cells: int = 80) -> None:
        self._paint, self._cells = paint, cells
        self._lines: list[Line] = []

    def paint_again(self, cells: int) -> None:
        self._cells = cells
        # What has no room ends in a sign that says so.
        self._lines = [item if line_width(item) <= cells else cut(item, cells) for item in self._paint(cells)]

    def count(self) -> int:
        return len(self._lines)

    def line(self, at: int, cells: int) -> Line:
        if cells != self._cells:
            self.paint_again(cells)
        return self._lines[at] if at < len(self._lines) else EMPTY


class LineView(ScrollView, can_focus=True):
    """cursor: the line that is marked as the current one, None where there is none."""

    DEFAULT_CSS = "LineView { scrollbar-size: 0 0; height: 1fr; }"

    class Picked(Message):
        """A line was clicked."""

        def __init__(self, view: "LineView", at: int) -> None:
            super().__init__()
            self.view, self.at = view, at

    class Scrolled(Message):
        """Someone moved the view by wheel."""

        def __init__(self, view: "LineView", lines: int) -> None:
            super().__init__()
            self.view, self.lines = view, lines

    def __init__(self, lines: Lines | None = None, *, id: str | None = None, base: str = "") -> None:
        super().__init__(id=id)
        self._source: Lines = lines or FixedLines(lambda cells: [])
        self._shown: dict[int, Line] = {}
        self._strips: dict[tuple[Line, int, bool], Strip] = {}
        self._styles: dict[tuple[str, bool], Style] = {}  # by tone, and whether under the cursor
        self._sequences: dict[tuple[str, bool], tuple[str, str]] = {}  # before and behind a text of that style
        self._base = base
        self._cursor: int | None = None
        self.can_focus = not base

    # What is shown

    def show(self, lines: Lines) -> None:
        self._source = lines
        self._shown.clear()
        self.repaint()
        self.refresh()

    def repaint(self) -> None:
        """Ask for the lines in sight again; those that changed are sent."""
        cells, height = self.size
        if not cells or not height:
            return
        if isinstance(self._source, FixedLines):
            self._source.paint_again(cells)
        count = self._source.count()
        if self.virtual_size != Size(cells, count):
            self.virtual_size = Size(cells, count)
        top = self.scroll_offset.y
        shown: dict[int, Line] = {}
        place = self.app.direct.place(self)  # type: ignore[attr-defined]  # ours
        for at in range(top, top + height):
            line = self._source.line(at, cells) if at < count else EMPTY
            shown[at] = line
            before = self._shown.get(at)
            if before is None:
                self.refresh_lines(at)
            elif before != line:
                first, last = changed_cells(before, line, cells)
                changed = Region(first, at - top, last - first, 1)
                if place is None:
                    self.refresh(changed)
                else:
                    self._styles_cache.set_dirty(changed)
                    sequence = self._sequence(between(line, first, last), at == self._cursor)
                    self.app.direct.add(place.x + first, place.y + at - top, sequence)  # type: ignore[attr-defined]  # ours
        self._shown = shown

    @property
    def cursor(self) -> int | None:
        return self._cursor

    @cursor.setter
    def cursor(self, at: int | None) -> None:
        if at == self._cursor:
            return
        for changed in (self._cursor, at):
            if changed is not None:
                self.refresh_lines(changed)
        self._cursor = at
        if at is not None:
            self.keep_in_sight(at)

    def keep_in_sight(self, at: int) -> None:
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if at < top:
            self.scroll_to_line(at)
        elif at >= top + height:
            self.scroll_to_line(at - height + 1)

    def scroll_to_line(self, top: int) -> None:
        count = self._source.count()
        if self.virtual_size.height != count:
            self.virtual_size = Size(self.size.width, count)
        last = max(count - self.size.height, 0)
        self.scroll_to(y=max(min(top, last), 0), animate=False, force=True)

    @property
    def at_end(self) -> bool:
        return self.scroll_offset.y + self.size.height >= self._source.count()

    # Textual

    def render_line(self, y: int) -> Strip:
        cells = self.size.width
        at = y + self.scroll_offset.y
        line = self._shown.get(at)
        if line is None:
            line = self._source.line(at, cells) if at < self._source.count() else EMPTY
            self._shown[at] = line
        marked = at == self._cursor
        key = (line, cells, marked)
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) > 1000:
                self._strips.clear()
            strip = self._strips[key] = self._strip(line, cells, marked)
        return strip

    def _strip(self, line: Line, cells: int, marked: bool) -> Strip:
        segments = [Segment(_safe(text), self._style(tone, marked)) for text, tone in line]
        return Strip(segments).adjust_cell_length(cells, self._style("", marked))

    def _sequence(self, line: Line, marked: bool) -> str:
        """As Textual sends it."""
        pieces: list[str] = []
        for text, tone in line:
            around = self._sequences.get((tone, marked))
            if around is None:
                around = self._sequences[tone, marked] = self._around(self._style(tone, marked))
            pieces += (around[0], _safe(text), around[1])
        return "".join(pieces)

    def _around(self, style: Style) -> tuple[str, str]:
        segments = [Segment("|", style)]
        for line_filter in self.get_line_filters():
            segments = line_filter.apply(segments, self.background_colors[1])
        before, _, behind = Strip(segments).render(self.app.console).partition("|")
        return before, behind

    def _style(self, tone: str, marked: bool) -> Style:
        style = self._styles.get((tone, marked))
        if style is None:
            palette = self.app.palette  # type: ignore[attr-defined]  # ours
            style = self.rich_style
            for name in (self._base, tone, ("cursor" if self.has_focus else "cursor_idle") if marked else ""):
                style += palette[name] if name else Style.null()
            self._styles[tone, marked] = style
        return style

    def forget(self) -> None:
        """Everything is painted anew: size, theme or focus changed."""
        self._shown.clear()
        self._strips.clear()
        self._styles.clear()
        self._sequences.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._styles.clear()
        self._sequences.clear()

    def on_resize(self, event: events.Resize) -> None:
        self._shown.clear()
        self._strips.clear()
        self.repaint()
        if self._cursor is not None:
            self.keep_in_sight(self._cursor)
        self.refresh()

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self._strips.clear()
        self._styles.clear()
        self._sequences.clear()
        if self._cursor is not None:
            self.refresh_lines(self._cursor)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Picked(self, event.y + self.scroll_offset.y))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self.post_message(self.Scrolled(self, 3))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        event.prevent_default()
        self.post_message(self.Scrolled(self, -3))


def _safe(text: str) -> str:
    """The second gate: texts were made safe where they came in."""
    return text if text.isprintable() else sanitize(text)
