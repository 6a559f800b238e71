"""The app: session, screens, one adaptive repaint tick, and an ending that leaves the terminal as it was."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from rich.style import Style
from textual import events
from textual._compositor import ChopsUpdate
from textual.app import App
from textual.screen import Screen

from console.core import line
from console.core.attention import attention
from console.core.header import HeaderFacts
from console.keymap import Keymap
from console.screens.list_view import ListScreen
from console.screens.view import ViewScreen
from console.terminal_driver import AltKey, TerminalDriver
from console.theme import DARK, LIGHT, THEMES, palette
from console.widgets.direct_paint import DirectPaint
from console.widgets.exact_update import ExactUpdate
from schemas.rules.permissions import Permission

if TYPE_CHECKING:
    from console.store.session import Session

SLOWEST_TICK_S = 2.0
LATE_S = 0.15  # a tick later than this: the terminal or this host is busy, so ask less of it
FACTS_S = 1.0
AGE_S = 2.0  # ages are coarse; a line is sent only where its text changed


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Console(App[int], inherit_bindings=False):
    """Workers change stores and say `news`; the tick, and it alone, repaints what is on the screen. Keys repaint at
    once."""

    CSS_PATH = Path(__file__).with_name("console.tcss")
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#main"
    BINDINGS: ClassVar = []  # keys come from the registry

    def __init__(
        self,
        session: "Session",
        keymap: Keymap,
        theme: str = "dark",
        glyphs: str = "braille",
        start: str = "groups",
    ) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.session, self.keymap, self.glyphs = session, keymap, glyphs
        self._start = start
        self._wanted_theme = THEMES.get(theme, DARK.name)
        self.direct = DirectPaint(self)
        self._views: dict[str, ListScreen] = {}
        self._shown = start
        self._slower = 1.0  # than the view would be painted if the terminal kept up
        self._tick_due: float | None = None
        self._last_tick = 0.0
        self._feeds: asyncio.Task[None] | None = None
        self._facts: tuple[float, object, HeaderFacts] | None = None
        self.marked: set[str] = set()
        self.crash: BaseException | None = None

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = self._wanted_theme
        self.palette: dict[str, Style] = palette(self.theme)
        self.session.news = self.news
        self.session.say = self.say
        self.show_view(self._start)
        self.set_interval(AGE_S, self._age)
        self._end_on_signals()
        self.call_after_refresh(self._connect)

    def _connect(self) -> None:
        self._feeds = asyncio.create_task(self.session.run())
        self._feeds.add_done_callback(self._feeds_ended)

    def _feeds_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._handle_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def on_unmount(self) -> None:
        if self._feeds is not None:
            self._feeds.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._feeds

    def _end_on_signals(self) -> None:
        """Textual leaves the terminal in its own mode on TERM and HUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        self.exit(128 + number, return_code=128 + number)

    def _fatal_error(self) -> None:
        """A crash goes to a file; the terminal gets one sentence, from whoever started the console."""
        self.crash = self._exception
        self._close_messages_no_wait()

    async def on_event(self, event: events.Event) -> None:
        for key in event.keys if isinstance(event, AltKey) and not self._is_typed_into() else (event,):
            await super().on_event(key)

    def _is_typed_into(self) -> bool:
        from textual.widgets import Input, TextArea  # the second costs much to load

        return isinstance(self.focused, Input | TextArea)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"input-cursor-background": "#9fc0de"}

    # The tick

    def news(self) -> None:
        if self._tick_due is None and self.is_running:
            view = self.top_view
            tick_s = min((view.tick_s if view is not None else ViewScreen.tick_s) * self._slower, SLOWEST_TICK_S)
            delay = max(0.02, self._last_tick + tick_s - time.monotonic())
            self._tick_due = time.monotonic() + delay
            asyncio.get_running_loop().call_later(delay, self._on_tick)

    def _on_tick(self) -> None:
        if self.is_running:
            with self._context():
                try:
                    self._tick()
                except Exception as error:
                    self._handle_exception(error)

    def _tick(self) -> None:
        began = time.monotonic()
        late = began - (self._tick_due or began)
        self._tick_due, self._last_tick = None, began
        behind = self._unsent()
        self._slower = min(self._slower * 2, 16.0) if late > LATE_S or behind else max(self._slower / 1.5, 1.0)
        if behind:
            # What is painted now would be old when it is seen, and everything after it older still.
            self.news()
            return
        self.flush()

    def _unsent(self) -> bool:
        """Whether the terminal has not yet taken what was painted before."""
        writer = getattr(self._driver, "_writer_thread", None)
        return writer is not None and writer._queue.qsize() > 0

    def flush(self) -> None:
        groups, mesh = self.session.mesh.take_dirty()
        shown = self.top_view
        for view in self._views.values():
            view.take(groups, mesh)
        if shown is not None:
            with self.direct.together():
                shown.flush(groups, mesh)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, ExactUpdate(renderable) if isinstance(renderable, ChopsUpdate) else renderable)

    def _age(self) -> None:
        if self._tick_due is None and (shown := self.top_view) is not None and shown is self.screen:
            with self.direct.together():
                shown.flush(set(), False)

    @property
    def top_view(self) -> ViewScreen | None:
        """The screen that is seen: below a dialog the one it lies on."""
        shown = next((screen for screen in reversed(self.screen_stack) if isinstance(screen, ViewScreen)), None)
        return shown if shown is not None and shown.ready else None

    # Screens

    def show_view(self, name: str) -> None:
        view = self._views.get(name)
        if view is None:
            from console.screens import list_screen

            view = self._views[name] = list_screen(name)
            self.install_screen(view, name)
        while len(self.screen_stack) > 2:
            self.pop_screen()
        if self.screen is view:
            return
        if len(self.screen_stack) == 2:
            self.switch_screen(view)
        else:
            self.push_screen(view)
        self._shown = name

    def show_of_group(self, screen: ViewScreen) -> None:
        """Screens of one group lie on the list, one at a time: going from log to timeline does not pile them up."""
        if len(self.screen_stack) > 2:
            self.switch_screen(screen)
        else:
            self.push_screen(screen)

    def leave(self, quit_at_root: bool = False) -> None:
        if len(self.screen_stack) > 2:
            self.pop_screen()
        elif self._shown != "groups":
            self.show_view("groups")
        elif quit_at_root:
            self.exit(0)

    def filter_shown_view(self, words: str) -> None:
        if (view := self._views.get(self._shown)) is not None:
            view.set_filter(words)

    def say(self, text: str, tone: str = line.TEXT) -> None:
        if (view := self.top_view) is not None:
            view.flash(text, tone)

    def facts(self) -> HeaderFacts:
        """Counted anew at most once a second: they stand in one line, and counting walks over every group."""
        now, key = time.monotonic(), (self.session.trouble, bool(self.session.silent_s), self.session.mesh.loaded)
        if self._facts is None or now - self._facts[0] >= FACTS_S or self._facts[1] != key:
            self._facts = (now, key, self._count())
        return self._facts[2]

    def _count(self) -> HeaderFacts:
        session, mesh = self.session, self.session.mesh
        consensus = session.consensus.get("consensus") or {}
        voters = consensus.get("voters") or []
        leader_id = consensus.get("leader")
        leader = next((str(voter.get("node")) for voter in voters if voter.get("raft_id") == leader_id), "")
        used, total = mesh.cards()
        return HeaderFacts(
            mesh=str(mesh.cluster.get("cluster_id") or "")[:8],
            attached=session.attached,
            leader=leader if session.consensus else None,
            voters=len(voters) or len(mesh.cluster.get("voters") or ()),
            voters_up=sum(bool(voter.get("connected")) for voter in voters) if leader_id else None,
            nodes_ready=mesh.ready_nodes(),
            nodes=len(mesh.nodes),
            cards_used=used,
            cards=total,
            waiting=mesh.counts().get("pending", 0),
            alerts=len(attention(mesh, session.consensus, session.now_ms(), session.alerts or ())),
            silent_s=session.silent_s,
            trouble=session.trouble,
            read_only=self.keymap.read_only or bool(session.refusal(Permission.WRITE_GROUPS)),
            loaded=mesh.loaded,
        )


def restore_terminal(write: Callable[[str], object]) -> None:
    """Whatever ended the console: mouse reporting, bracketed paste and the other screen are off, the cursor is back."""
    with contextlib.suppress(OSError, ValueError):
        write("\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?2004l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m")
