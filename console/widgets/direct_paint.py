"""Changed cells on their way to the terminal past Textual's compositor.

For one changed cell in two lines Textual 8.2.8 cuts, filters and joins every line from the first to the last, which
costs ten times what painting the cells does. It is told what changed, so whatever it paints later is right.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.control import Control
from textual.app import App
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget


class DirectPaint:
    """Open while the tick repaints; what is painted then leaves in one piece."""

    def __init__(self, app: "App[int]") -> None:
        self._app = app
        self._pieces: list[str] | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        self._pieces = []
        try:
            yield
        finally:
            pieces, self._pieces = self._pieces, None
            if pieces:
                self._send("".join(pieces))

    def place(self, widget: Widget) -> Region | None:
        """Where the widget lies on the terminal; None where it is for Textual to paint it: another screen is above it,
        or Textual has something to paint or to move itself."""
        screen = widget.screen
        if self._pieces is None or screen is not self._app.screen or _moves(screen):
            return None
        place = widget.region
        return place if place and screen.region.contains_region(place) else None

    def add(self, x: int, y: int, sequence: str) -> None:
        assert self._pieces is not None
        self._pieces += (Control.move_to(x, y).segment.text, sequence)

    def _send(self, text: str) -> None:
        """As App._display does."""
        app = self._app
        driver = app._driver
        if driver is None or app.is_headless or app._closed:
            return
        cursor = app.screen.outer_size.clamp_offset(app.cursor_position)
        app._begin_update()
        driver.write(text + Control.move_to(*cursor).segment.text)
        app._end_update()
        driver.flush()


def _moves(screen: "Screen[object]") -> bool:
    return bool(
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._dirty_widgets
        or screen._compositor._dirty_regions
        or screen.app._batch_count
    )
