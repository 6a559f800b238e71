"""A question with two or three buttons; Cancel is the one that enter presses first."""

from typing import TYPE_CHECKING, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from console.core import line
from console.core.confirm_text import Question
from console.core.footer import footer
from console.core.line import Line, Span, broken, joined, line_width
from console.widgets.in_order import too_late
from console.widgets.line_view import FixedLines, LineView

if TYPE_CHECKING:
    from console.app import Console

CANCEL = "Cancel"
LEAST_CELLS = 30
MARGIN_LINES = 4  # of the screen around the question
FRAME_LINES = 5  # of a question beside what it says: title, two empty ones, buttons, keys


def room(screen_cells: int) -> int:
    """Cells of a line of a question on a screen of this width."""
    return max(screen_cells - 8, 1)


class ConfirmScreen(ModalScreen[str]):
    """Ends with the answer that was chosen, "" for none."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self._question = question
        self._answers = ["", question.yes, *([question.later] if question.later else [])]
        self._chosen = 0

    @property
    def console(self) -> "Console":
        return cast("Console", self.app)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = None
            yield LineView(FixedLines(self._lines), id="question", base="text")

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self, event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        wide = min(max([60, *(line_width(item) for item in self._question.lines)]), room(self.app.size.width))
        view = self.query_one("#question", LineView)
        view.styles.width = wide
        view.styles.height = min(len(self._all(wide)) + FRAME_LINES, max(self.app.size.height - MARGIN_LINES, 1))

    def _all(self, cells: int) -> list[Line]:
        return [part for item in self._question.lines for part in broken(item, cells)]

    def _body(self, cells: int, height: int) -> list[Line] | None:
        """None: what happens has no room. Groups that have none are counted."""
        lines = self._all(cells)
        if len(lines) <= height:
            return lines
        between = lines.index(line.EMPTY)
        named = height - (len(lines) - between) - 1
        if named < 1:
            return None
        rest: Line = ((f"and {between - named} more lines, which have no room here", line.WARN),)
        return [*lines[:named], rest, *lines[between:]]

    def _lines(self, cells: int) -> list[Line]:
        height = self.query_one("#question", LineView).size.height - FRAME_LINES
        body = self._body(cells, height)
        if body is None:
            lines = self._all(cells)
            least = len(lines) - lines.index(line.EMPTY) + 2 + FRAME_LINES + MARGIN_LINES
            return [((f"{self._question.title}: a terminal of {least} lines or more shows the question", line.WARN),)]
        buttons = joined([(self._button(at),) for at in range(len(self._answers))], ("  ", line.TEXT))
        return [((self._question.title, line.TITLE),), line.EMPTY, *body, line.EMPTY, buttons, self._keys(cells)]

    def _button(self, at: int) -> Span:
        name = self._answers[at] or CANCEL
        if at != self._chosen:
            return (f"  {name}  ", line.DIM)
        return (f"[ {name} ]", line.BAD if at else line.KEY)

    def _keys(self, cells: int) -> Line:
        labels = {
            "confirm_yes": self._question.yes,
            "confirm_later": "after checkpoint" if self._question.later else "",
        }
        keymap = self.console.keymap
        shown = [
            (keymap.keys(action), label, True)
            for action in keymap.actions("confirm")
            if (label := labels.get(action.name, action.label))
        ]
        return footer(shown, "", cells)[1:]

    async def on_key(self, event: events.Key) -> None:
        if too_late(self, event):
            return
        action = self.console.keymap.action("confirm", event.key, event.character)
        event.stop()
        event.prevent_default()
        if action is None:
            return
        # What cannot be read cannot be agreed to.
        view = self.query_one("#question", LineView)
        unread = (
            self.app.size.width < LEAST_CELLS or self._body(view.size.width, view.size.height - FRAME_LINES) is None
        )
        if unread and action.name in ("confirm_yes", "confirm_later", "confirm_press"):
            return
        getattr(self, f"do_{action.name}")()

    def do_confirm_yes(self) -> None:
        self.dismiss(self._question.yes)

    def do_confirm_later(self) -> None:
        if self._question.later:
            self.dismiss(self._question.later)

    def do_confirm_no(self) -> None:
        self.dismiss("")

    def do_confirm_next(self) -> None:
        self._choose(1)

    def do_confirm_previous(self) -> None:
        self._choose(-1)

    def _choose(self, step: int) -> None:
        self._chosen = (self._chosen + step) % len(self._answers)
        self.query_one("#question", LineView).repaint()

    def do_confirm_press(self) -> None:
        self.dismiss(self._answers[self._chosen])

    def do_quit(self) -> None:
        self.app.exit(0)
