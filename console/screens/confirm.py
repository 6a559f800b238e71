"""A question with two buttons; Cancel is the one that enter presses first."""

from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from console.core import line
from console.core.confirm_text import Question
from console.core.line import Line, line_width
from console.widgets.in_order import too_late
from console.widgets.line_view import FixedLines, LineView

if TYPE_CHECKING:
    from console.app import Console

CANCEL = "Cancel"
LEAST_CELLS, LEAST_LINES = 30, 6


def room(screen_cells: int) -> int:
    """Cells of a line of a question on a screen of this width."""
    return max(screen_cells - 8, 1)


class ConfirmScreen(ModalScreen[bool]):
    def __init__(self, question: Question) -> None:
        super().__init__()
        self._question = question
        self._yes_chosen = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = None
            yield LineView(FixedLines(self._lines), id="question", base="text")

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self, event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        wide = max([60, *(line_width(item) for item in self._question.lines)])
        view = self.query_one("#question", LineView)
        view.styles.width = min(wide, room(self.app.size.width))
        view.styles.height = min(len(self._question.lines) + 4, max(self.app.size.height - 4, 1))

    def _lines(self, cells: int) -> list[Line]:
        chosen, other = ("key", "dim")
        cancel = (f"[ {CANCEL} ]", chosen) if not self._yes_chosen else (f"  {CANCEL}  ", other)
        yes = (f"[ {self._question.yes} ]", line.BAD) if self._yes_chosen else (f"  {self._question.yes}  ", other)
        buttons: Line = (cancel, ("   ", line.TEXT), yes, ("     y yes   n no   tab other button", line.DIM))
        room = max(self.query_one("#question", LineView).size.height - 4, 0)
        body = list(self._question.lines[:room])
        return [((self._question.title, line.TITLE),), line.EMPTY, *body, line.EMPTY, buttons]

    async def on_key(self, event: events.Key) -> None:
        if too_late(self, event):
            return
        console: Console = self.app  # type: ignore[assignment]
        action = console.keymap.action("confirm", event.key, event.character)
        event.stop()
        event.prevent_default()
        if action is None:
            return
        # What cannot be read cannot be agreed to.
        size = self.app.size
        if action.name in ("confirm_yes", "confirm_press") and (size.width < LEAST_CELLS or size.height < LEAST_LINES):
            return
        getattr(self, f"do_{action.name}")()

    def do_confirm_yes(self) -> None:
        self.dismiss(True)

    def do_confirm_no(self) -> None:
        self.dismiss(False)

    def do_confirm_other(self) -> None:
        self._yes_chosen = not self._yes_chosen
        self.query_one("#question", LineView).repaint()

    def do_confirm_press(self) -> None:
        self.dismiss(self._yes_chosen)

    def do_quit(self) -> None:
        self.app.exit(0)
