"""The one line in which people type: filter, search, command. While it has the focus every printable key is its own."""

from collections.abc import Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, Label

from console.widgets.in_order import act_at_once


class Field(Input):
    async def on_key(self, event: events.Key) -> None:
        if isinstance(self.parent, Prompt) and not self.parent.take_control(event):
            await act_at_once(self, event)


class Prompt(Horizontal):
    """Hidden until `ask`. changed is called at each key, done with None when it is left by escape."""

    DEFAULT_CSS = """
    Prompt { height: 1; display: none; }
    Prompt Label { width: auto; padding: 0 0 0 1; text-style: bold; }
    Prompt Input { border: none; height: 1; padding: 0; width: 1fr; background: transparent; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed: Callable[[str], None] | None = None
        self._done: Callable[[str | None], None] | None = None
        self._before: Widget | None = None

    def compose(self) -> ComposeResult:
        yield Label("", markup=False)
        yield Field(compact=True, select_on_focus=False)

    def ask(
        self,
        label: str,
        text: str,
        done: Callable[[str | None], None],
        changed: Callable[[str], None] | None = None,
        words: Sequence[str] = (),
    ) -> None:
        self._changed, self._done = changed, done
        self._before = self.screen.focused
        field = self.query_one(Input)
        self.query_one(Label).update(label)
        field.suggester = SuggestFromList(words, case_sensitive=False) if words else None
        with field.prevent(Input.Changed):
            field.value = text
        field.cursor_position = len(text)
        self.display = True
        self.screen.add_class("asking")
        self.screen.set_focus(field)

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    async def take_ahead(self, event: events.Key) -> None:
        """A key that was struck before the focus had come here: typed text is text from the first letter on."""
        if self.take_control(event):
            return
        field = self.query_one(Input)
        if event.is_printable and event.character is not None:
            field.insert_text_at_cursor(event.character)
        else:
            await act_at_once(field, event)

    def take_control(self, event: events.Key) -> bool:
        """Whether it was one of the keys that are not the field's own, or is none of the prompt's any more."""
        field = self.query_one(Input)
        if not self.is_open:
            # Struck behind the one that closed the line.
            self.screen.post_message(events.Key(event.key, event.character))
        elif event.key == "enter":
            self._leave(field.value)
        elif event.key in ("escape", "ctrl+c"):
            self._leave(None)
        elif event.key == "tab":
            field.action_cursor_right()
        else:
            return False
        event.stop()
        event.prevent_default()
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._changed is not None and self.display:
            self._changed(event.value)

    def _leave(self, text: str | None) -> None:
        done, self._done, self._changed = self._done, None, None
        self.display = False
        self.screen.remove_class("asking")
        self.screen.set_focus(self._before)
        if done is not None:
            done(text)
