"""The console on a mesh that stands still, driven by keys."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from console.app import Console
from console.core.line import plain
from console.endpoints import Target
from console.keymap import Keymap
from console.store.session import Session
from console.widgets.line_view import LineView
from tests.snapshots.canned_mesh import NOW_MS, TOKEN, CannedMesh, served

DEADLINE_S = 10.0


class Driven:
    """keys, and what stands on the screen."""

    def __init__(self, app: Console, pilot: Any, mesh: CannedMesh | None = None) -> None:
        self.app, self.pilot, self.mesh = app, pilot, mesh

    @property
    def screen(self) -> Any:
        return self.app.screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    def text(self) -> str:
        """The screen as text, line by line, as the compositor has it."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def until(self, shown: str | Callable[[], bool]) -> str:
        """Until this text stands on the screen."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            await self.pilot.pause()
            if shown() if callable(shown) else shown in self.text():
                return self.text()
            await asyncio.sleep(0.02)
        raise AssertionError(f"{shown!r} did not come; the screen is\n{self.text()}")

    async def settled(self) -> str:
        """Until nothing changes any more."""
        before, since = self.text(), time.monotonic()
        end = since + DEADLINE_S
        while time.monotonic() - since < 0.35 and time.monotonic() < end:
            await asyncio.sleep(0.05)
            await self.pilot.pause()
            if (now := self.text()) != before:
                before, since = now, time.monotonic()
        return before

    def view(self, name: str = "#main") -> LineView:
        return self.app.screen.query_one(name, LineView)

    def lines(self, name: str = "#main") -> list[str]:
        view = self.view(name)
        return [plain(view._source.line(at, view.size.width)) for at in range(view._source.count())]


@asynccontextmanager
async def driven(
    mesh: CannedMesh, size: tuple[int, int] = (160, 50), *, read_only: bool = False, theme: str = "dark"
) -> AsyncIterator[Driven]:
    async with served(mesh) as address:
        session = Session(Target((address,), TOKEN), lambda: NOW_MS, timeout_s=5.0)
        app = Console(session, Keymap({}, read_only), theme)
        async with app.run_test(size=size) as pilot:
            yield Driven(app, pilot, mesh)
