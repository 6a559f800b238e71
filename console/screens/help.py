"""Keys that work on the screen one came from, out of the registry, and what its signs mean."""

from textual.app import ComposeResult

from console.actions import SCOPES, VIEWS, Action, key_name
from console.core import line
from console.core.line import Line, cell, flowed, hung, wrapped
from console.core.marks import STALLED, group_mark
from console.screens.view import ViewScreen
from console.widgets.line_view import FixedLines, LineView

KEYS_CELLS = 18
_MOVES = ("down", "up", "page_down", "page_up", "top", "bottom", "left", "right")
_SHOWN_STATES = ("running", "starting", "pending", "paused", "recovering", "stopping", "failed", "completed")
_SIGNS: dict[str, tuple[str, ...]] = {
    "groups": (
        "STEP, LOSS: the newest that the job wrote; SEEN: how long ago that was; UTIL: its cards on average.",
        "RUN: since it started; AGE: since it was submitted.",
        "A yellow R running: no step has come for three minutes, and it is not sure that it is stuck.",
    ),
    "nodes": (
        "▁ to ▇: a card in use, the higher the busier, yellow below 5 %; · a free one; ▚ one that is being cleaned.",
        "H cordon: takes no new groups; D drains, D empty: its groups were moved away.",
        "GOSSIP: how the other agents see it; what counts for the mesh is STATE.",
    ),
    "mesh": ("LAG: entries of the log that a voter is behind; spare: voters that may be lost before commands wait.",),
    "queue": ("#: the order in which the scheduler looks at them; a later one may start first where it delays none.",),
    "detail": (
        "SILENT: how long the log of a rank has been silent; UTIL: its cards on average; MEM: of the fullest one.",
    ),
    "log": (
        "◈ is said by the mesh, not by the job. The number before the line is the rank of the task, the node rank.",
    ),
    "curve": ("N: a value that is no number; R: the step fell back, which a resume does.",),
}


class HelpScreen(ViewScreen):
    scope = "help"
    title_text = "help"

    def __init__(self, about: str) -> None:
        super().__init__()
        self._about = about

    def crumbs(self) -> list[str]:
        return [SCOPES[self._about].lower(), self.title_text]

    def position(self) -> str:
        return self.lines_below()

    def body(self) -> ComposeResult:
        yield LineView(FixedLines(self._lines), id="main")

    def _lines(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        actions = self.console.keymap.actions(self._about)
        moves = [action for action in actions if action.name in _MOVES]
        everywhere = [action for action in actions if action not in moves and set(VIEWS) <= set(action.scopes)]
        here = [action for action in actions if action not in moves and action not in everywhere]
        lines: list[Line] = []
        for title, some in (("Here", here), ("Everywhere", everywhere), ("Moving", moves)):
            lines += [
                line.EMPTY,
                ((f" {title}", line.TITLE),),
                *(row for item in some for row in self._rows(item, cells)),
            ]
        return [*lines, line.EMPTY, *_signs(self._about, cells)]

    def _rows(self, action: Action, cells: int) -> list[Line]:
        keys = "  ".join(key_name(key) for key in self.console.keymap.keys(action))
        allowed = not self.refusal(action)
        said = action.help if allowed else f"{action.help} (your key may not)"
        head = cell(keys, KEYS_CELLS, line.KEY if allowed else line.DIM)
        return hung((("  ", line.TEXT), head, (" ", line.TEXT)), said, line.TEXT if allowed else line.DIM, cells)


def _signs(about: str, cells: int) -> list[Line]:
    states: list[Line] = [((mark.text, mark.tone),) for mark in (*map(group_mark, _SHOWN_STATES), STALLED)]
    said = [
        *_SIGNS.get(about, ()),
        "Filter: words that must be in a row; !word must not; status=failed user=lin gpu>8.",
        "Hold shift (option on a Mac) to select text with the mouse, or start with --no-mouse.",
    ]
    return [
        ((" Signs", line.TITLE),),
        *(((" ", line.TEXT), (" ", line.TEXT), *item) for item in flowed(states, cells - 3, 3)),
        *(((f"  {text}", line.DIM),) for sentence in said for text in wrapped(sentence, max(cells - 3, 10))),
    ]
