"""A copy of a group's document, edited: what is wrong with it is shown while one types, what was changed too."""

from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import TextArea

from console.cli.request import new_request_id
from console.core import line
from console.core.document_yaml import document_yaml
from console.core.footer import footer
from console.core.guards import Judged, judged
from console.core.line import Line, shortened, wrapped
from console.core.sanitize import sanitize
from console.widgets.in_order import act_at_once, too_late
from console.widgets.line_view import FixedLines, LineView

if TYPE_CHECKING:
    from console.app import Console

JUDGE_AFTER_S = 0.15
DOCUMENT_S = 10.0
TITLE = "clone"


async def open_editor(console: "Console", group_id: str) -> None:
    """The document as it was accepted, not as it is painted: a clone must be letter for letter the same."""
    asked_on = console.screen
    document, name = await _document(console, group_id)
    if console.screen is not asked_on:
        return  # whoever asked has gone on meanwhile, or asked twice
    if document is None:
        console.say(f"the document of {group_id} did not come within {DOCUMENT_S:.0f} s; c asks again", line.BAD)
        return
    await console.push_screen(EditorScreen(name, document))


async def _document(console: "Console", group_id: str) -> tuple[dict[str, Any] | None, str]:
    session = console.session
    focus = session.focus
    if focus is None or focus.group_id != group_id:
        session.focus_on(group_id)
        focus = session.focus
    assert focus is not None
    if not await focus.wait_loaded(DOCUMENT_S) or not focus.document:
        return None, ""
    return focus.document, focus.group.name if focus.group is not None else group_id


class DocumentText(TextArea):
    def on_mount(self) -> None:
        self.cursor_blink = False  # each blink would send its line

    async def on_key(self, event: events.Key) -> None:
        assert isinstance(self.screen, EditorScreen)
        if not too_late(self.screen, event) and not self.screen.take_control(event):
            await act_at_once(self, event)


class EditorScreen(ModalScreen[None]):
    def __init__(self, name: str, document: dict[str, Any]) -> None:
        super().__init__()
        self._of, self._document = name, document
        self._begun = document_yaml(document)
        self._judged = Judged(None, ())
        self._answered: list[Line] = []  # to what was submitted; the next letter wipes it away
        self._left_at: str | None = None  # the text with which someone asked to leave
        # One id for this clone: pressing submit again after a lost answer cannot make two groups.
        self._request_id = new_request_id()
        self._sent: bytes | None = None

    @property
    def console(self) -> "Console":
        from console.app import Console

        assert isinstance(self.app, Console)
        return self.app

    def compose(self) -> ComposeResult:
        yield LineView(FixedLines(self._head), id="head", base="bar")
        yield DocumentText(self._begun, soft_wrap=False, show_line_numbers=True, tab_behavior="indent", id="text")
        yield LineView(FixedLines(self._findings), id="findings", base="bar")
        yield LineView(FixedLines(self._foot), id="foot", base="bar")

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()
        self._judge()

    def on_resize(self, event: events.Resize) -> None:
        self.query_one("#findings", LineView).styles.height = max(min(event.size.height // 3, 10), 1)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        self._answered = []
        self.set_timer(JUDGE_AFTER_S, self._judge)

    def _judge(self) -> None:
        cells = max(self.app.size.width - 2, 20)
        self._judged = judged(self.query_one(TextArea).text, self._document, cells)
        for name in ("#findings", "#head", "#foot"):
            self.query_one(name, LineView).repaint()

    def _head(self, cells: int) -> list[Line]:
        return [line.cut(((" " + TITLE, line.DIM), (" ▸ ", line.RULE), (self._of, line.TITLE)), cells)]

    def _findings(self, cells: int) -> list[Line]:
        said: list[Line] = [((" ", line.TEXT), *item) for item in (*self._answered, *self._judged.lines)]
        return shortened(said, self.query_one("#findings", LineView).size.height, cells)

    def _foot(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        if self._left_at == self.query_one(TextArea).text:
            return [((" what you changed is lost if you leave: esc once more leaves, any other key stays", line.WARN),)]
        keymap = self.console.keymap
        shown = [(keymap.keys(action), action.label, True) for action in keymap.actions("editor") if action.label]
        return [footer(shown if self._judged.body is not None else shown[1:], "", cells)]

    def take_control(self, event: events.Key) -> bool:
        """Whether the key is an action's of the registry, and none that the text takes."""
        action = self.console.keymap.action("editor", event.key, event.character)
        if action is None or event.is_printable:
            return False
        event.stop()
        event.prevent_default()
        getattr(self, f"do_{action.name}")()
        return True

    def do_editor_submit(self) -> None:
        self._judge()
        body = self._judged.body
        if body is None:
            self.app.bell()
            return
        if self._sent is not None and body != self._sent:
            self._request_id = new_request_id()
        self._sent = body
        self._answer("submitting …", line.BUSY)
        self.console.session.in_background(self._submit(body, self._request_id))

    async def _submit(self, body: bytes, request_id: str) -> None:
        outcome = await self.console.session.submit(body, request_id)
        if self.console.screen is not self:
            # It was submitted twice and the other answer came first, or someone left meanwhile.
            self.console.say(outcome.text, line.GOOD if outcome.ok else line.BAD if outcome.sure else line.WARN)
        elif outcome.ok:
            self.dismiss()
            self.console.say(f"submitted as {outcome.group_id}", line.GOOD)
        else:
            self._answer(f"✗ {outcome.text}", line.BAD if outcome.sure else line.WARN)

    def _answer(self, text: str, tone: str) -> None:
        cells = max(self.app.size.width - 2, 20)
        self._answered = [((part, tone),) for part in wrapped(sanitize(text), cells)]
        self.query_one("#findings", LineView).repaint()

    def do_editor_leave(self) -> None:
        text = self.query_one(TextArea).text
        if text in (self._begun, self._left_at):
            self.dismiss()
            return
        self._left_at = text
        self.query_one("#foot", LineView).repaint()

    def do_quit(self) -> None:
        self.do_editor_leave()
