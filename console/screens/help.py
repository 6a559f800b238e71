"""Keys that work on the screen one came from, out of the registry."""

from textual.app import ComposeResult

from console.actions import SCOPES, key_name
from console.core import line
from console.core.line import Line, cell
from console.screens.view import ViewScreen
from console.widgets.line_view import FixedLines, LineView


class HelpScreen(ViewScreen):
    scope = "help"
    title_text = "help"

    def __init__(self, about: str) -> None:
        super().__init__()
        self._about = about

    def crumbs(self) -> list[str]:
        return [SCOPES[self._about].lower(), self.title_text]

    def body(self) -> ComposeResult:
        yield LineView(FixedLines(self._lines), id="main")

    def _lines(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        keymap = self.console.keymap
        lines: list[Line] = [line.EMPTY]
        for action in keymap.actions(self._about):
            keys = "  ".join(key_name(key) for key in keymap.keys(action))
            allowed = not self.refusal(action)
            about = (action.help, line.TEXT) if allowed else (f"{action.help} (your key may not)", line.DIM)
            lines.append((("  ", line.TEXT), cell(keys, 20, line.KEY if allowed else line.DIM), about))
        lines += [
            line.EMPTY,
            (
                ("  States: ", line.DIM),
                ("R running", line.GOOD),
                ("  S starting", line.BUSY),
                ("  Q pending", line.WAIT),
                ("  ! recovering or stalled", line.WARN),
                ("  X stopping, stopped", line.DIM),
                ("  F failed", line.BAD),
                ("  C completed", line.DIM),
            ),
            (
                ("  Filter: words that must be in a row, ", line.DIM),
                ("!word", line.KEY),
                (" must not, ", line.DIM),
                ("status=failed user=lin gpu>8", line.KEY),
            ),
            (
                (
                    "  Hold shift (option on a Mac) to select text with the mouse, or start with --no-mouse.",
                    line.DIM,
                ),
            ),
        ]
        return [line.cut(item, cells) for item in lines]
