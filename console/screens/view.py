"""What all screens share: header, keys from the registry, prompt, footer, and when they repaint."""

import time
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.screen import Screen

from console.actions import ACTIONS, Action
from console.core import line
from console.core.footer import footer
from console.core.header import HeaderFacts, header
from console.core.line import Line
from console.widgets.in_order import too_late
from console.widgets.line_view import FixedLines, LineView
from console.widgets.prompt import Prompt

if TYPE_CHECKING:
    from console.app import Console
    from console.store.session import Session

LEAST_CELLS, LEAST_LINES = 40, 8
FLASH_S = 6.0


class ViewScreen(Screen[None]):
    """Textual calls `on_*` of every class of a screen, so none of them calls its parent's.

    scope: the registry's. A screen has a method `do_<action>` for each action of its scope. tick_s: the time between
    two repaints while much changes."""

    scope: ClassVar[str] = ""
    tick_s: ClassVar[float] = 1 / 3
    title_text: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self._flashes: list[tuple[float, str, str]] = []  # (until when, text, tone), newest first
        self._told: tuple[tuple[str, ...], HeaderFacts, int] | None = None  # in the header that is shown
        self._header: Line = ()
        self._head = FixedLines(self._head_lines)
        self._foot = FixedLines(self._foot_lines)

    @property
    def console(self) -> "Console":
        return cast("Console", self.app)

    @property
    def session(self) -> "Session":
        return self.console.session

    def compose(self) -> ComposeResult:
        yield LineView(self._head, id="head", base="bar")
        yield from self.body()
        yield Prompt()
        yield LineView(self._foot, id="foot", base="bar")
        yield LineView(
            FixedLines(lambda cells: [((f"too small: {LEAST_CELLS}x{LEAST_LINES} is the least", line.WARN),)]),
            id="small",
            base="bar",
        )

    def body(self) -> ComposeResult:
        raise NotImplementedError

    @property
    def main(self) -> LineView:
        return self.query_one("#main", LineView)

    @property
    def ready(self) -> bool:
        """Its widgets are there: they come a little later than the screen and go a little earlier."""
        try:
            return self.get_child_by_id("foot").is_attached
        except NoMatches:
            return False

    # Repainting

    def flush(self, groups: set[str] | None, mesh: bool) -> None:
        """groups: those that changed; None: all may have. Called by the tick, only while on the screen."""
        self.query_one("#head", LineView).repaint()
        self._flash_over()
        self.refoot()

    def flash(self, text: str, tone: str = line.TEXT) -> None:
        """For some seconds, before what was said a moment ago: what became of an action is not wiped away by the news
        that a node went. Only progress gives way at once."""
        now = time.monotonic()
        kept = [said for said in self._flashes if said[0] > now and said[2] != line.BUSY and said[1] != text]
        self._flashes = [(now + FLASH_S, text, tone), *kept]
        if self.ready:
            self.query_one("#foot", LineView).repaint()
        self.set_timer(FLASH_S + 0.1, self._flash_over)

    def _flash_over(self) -> None:
        now = time.monotonic()
        if self.ready and any(until < now for until, _, _ in self._flashes):
            self._flashes = [said for said in self._flashes if said[0] > now]
            self.query_one("#foot", LineView).repaint()

    def refoot(self) -> None:
        self.query_one("#foot", LineView).repaint()

    def crumbs(self) -> list[str]:
        return [self.title_text]

    def _head_lines(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        told = (tuple(self.crumbs()), self.console.facts(), cells)
        if told != self._told:
            self._told, self._header = told, header(*told)
        return [self._header]

    def _foot_lines(self, cells: int) -> list[Line]:
        if not self.is_attached:
            return []
        if self._flashes:
            texts = [(text, tone) for _, text, tone in self._flashes]
            between = [item for text in texts[1:] for item in ((" · ", line.RULE), text)]
            return [line.cut(((" ", line.TEXT), texts[0], *between), cells)]
        keymap = self.console.keymap
        # Where enter opens the detail, one of the two keys is enough.
        opens = any(action.name == "open" for action in keymap.actions(self.scope))
        shown = [
            (keymap.keys(action), self.label(action), not self.refusal(action))
            for action in keymap.actions(self.scope)
            if action.label and self.enabled(action) and not (action.name == "detail" and opens)
        ]
        return [footer(shown, self.position(), cells)]

    def position(self) -> str:
        """At the right end of the footer."""
        return ""

    def enabled(self, action: Action) -> bool:
        """Whether it can do something now; the footer shows no key that cannot."""
        return True

    def label(self, action: Action) -> str:
        """What its key would do now."""
        return action.label

    def lines_below(self) -> str:
        """For the footer of a page that is scrolled."""
        view = self.main
        below = view.virtual_size.height - view.scroll_offset.y - view.size.height
        return f"{below:,} more ↓" if below > 0 else ""

    def on_mount(self) -> None:
        self.call_after_refresh(self.on_screen_resume)

    def on_screen_resume(self) -> None:
        if not self.ready:
            return
        self.flush(None, True)
        self.refoot()

    def on_resize(self, event: events.Resize) -> None:
        small = event.size.width < LEAST_CELLS or event.size.height < LEAST_LINES
        self.set_class(small, "too-small")

    # Keys

    async def on_key(self, event: events.Key) -> None:
        if too_late(self, event):
            return
        prompt = self.query_one(Prompt)
        if prompt.is_open:
            event.stop()
            event.prevent_default()
            await prompt.take_ahead(event)
            return
        action = self.console.keymap.action(self.scope, event.key, event.character)
        if action is None:
            return
        event.stop()
        event.prevent_default()
        if self.has_class("too-small") and action.name not in ("quit", "leave", "back"):
            return
        self.perform(action)

    def refusal(self, action: Action) -> str:
        """Why the mesh would refuse it to this key, or ""."""
        return self.session.refusal(action.needs) if action.mutating else ""

    def perform(self, action: Action) -> None:
        if why := self.refusal(action):
            self.flash(why, line.WARN)
            return
        getattr(self, f"do_{action.name}")()

    def on_line_view_scrolled(self, event: LineView.Scrolled) -> None:
        self.move(event.lines)

    def move(self, lines: int) -> None:
        view = self.main
        view.scroll_to_line(view.scroll_offset.y + lines)
        view.repaint()
        self.refoot()

    def do_down(self) -> None:
        self.move(1)

    def do_up(self) -> None:
        self.move(-1)

    def do_page_down(self) -> None:
        self.move(max(self.main.size.height - 1, 1))

    def do_page_up(self) -> None:
        self.move(-max(self.main.size.height - 1, 1))

    def do_top(self) -> None:
        self.move(-(10**9))

    def do_bottom(self) -> None:
        self.move(10**9)

    def do_view_groups(self) -> None:
        self.console.show_view("groups")

    def do_view_queue(self) -> None:
        self.console.show_view("queue")

    def do_view_nodes(self) -> None:
        self.console.show_view("nodes")

    def do_view_mesh(self) -> None:
        self.console.show_view("mesh")

    def do_view_alerts(self) -> None:
        self.console.show_view("alerts")

    def do_help(self) -> None:
        from console.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.scope))

    def do_redraw(self) -> None:
        for view in self.query(LineView):
            view.forget()
        self.refresh(layout=True)

    def do_suspend(self) -> None:
        self.app.action_suspend_process()

    def do_back(self) -> None:
        self.console.leave()

    def do_leave(self) -> None:
        self.console.leave(quit_at_root=True)

    def do_quit(self) -> None:
        self.app.exit()

    def do_command(self) -> None:
        by_word = {action.word or action.name: action for action in self.console.keymap.actions(self.scope)}
        words = sorted(word for word, action in by_word.items() if action.name != "command")

        def done(text: str | None) -> None:
            word, _, rest = (text or "").strip().partition(" ")
            if not word:
                return
            fitting = [known for known in words if known.startswith(word.lower())]
            exact = word.lower() if word.lower() in by_word else fitting[0] if len(fitting) == 1 else None
            if exact is None:
                near = f"; did you mean {', '.join(fitting[:5])}?" if fitting else "; ? lists what there is"
                self.flash(f"no command {word!r}{near}", line.WARN)
                return
            self.perform(by_word[exact])
            if rest.startswith("/"):
                self.console.filter_shown_view(rest[1:])

        self.query_one(Prompt).ask(":", "", done, words=words)


def action_named(name: str) -> Action:
    return next(action for action in ACTIONS if action.name == name)
