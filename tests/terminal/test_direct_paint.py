"""Cells that are painted past Textual stand on the terminal as Textual would have painted them."""

from pathlib import Path
from typing import Any

import pyte
import pytest

from tests.snapshots.canned_mesh import gid
from tests.snapshots.example_mesh import SWEEP, WHISPER, example_mesh
from tests.terminal.pty_console import PtyConsole, pty_console
from tests.terminal.served_mesh import served_mesh
from tests.terminal.test_bytes import token_file

pytestmark = pytest.mark.slow

COLUMNS, LINES = 120, 40
TRIES = 10  # an age may turn over between two looks
REDRAW = "\x0c"


class Screen:
    def __init__(self, console: PtyConsole) -> None:
        self._console, self._fed = console, 0
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)

    def cells(self) -> list[list[Any]]:
        """Every cell with its colours, once nothing more comes."""
        while True:
            self._console.read(0.3)
            if self._fed == len(self._console.sent):
                break
            self._stream.feed(self._console.sent[self._fed :])
            self._fed = len(self._console.sent)
        return [[self._screen.buffer[y][x] for x in range(COLUMNS)] for y in range(LINES)]


@pytest.mark.parametrize(
    ("options", "environment"),
    [((), {}), (("--theme", "light"), {}), (("--theme", "ansi"), {}), ((), {"NO_COLOR": "1"})],
)
def test_changed_cells_look_as_after_a_redraw(
    tmp_path: Path, options: tuple[str, ...], environment: dict[str, str]
) -> None:
    environment |= {"TEXTUAL_DISABLE_KITTY_KEY": "1"}
    with (
        served_mesh(example_mesh()) as mesh,
        pty_console(
            mesh.address, token_file(tmp_path), *options, size=(COLUMNS, LINES), environment=environment
        ) as console,
    ):
        rows = {key: row for entity, key, row in mesh.mesh.rows if entity == "group"}
        console.until("whisper")
        screen = Screen(console)
        screen.cells()
        for at in range(TRIES):
            since = len(console.sent)
            pending_reason = {"code": "no_fit", "text": f"needs 1x8 全部忙 … free {at}\x1b[2J\x9b", "details": {}}
            mesh.change(
                ("group", gid(WHISPER), rows[gid(WHISPER)] | {"pending_reason": pending_reason}),
                ("group", gid(SWEEP), rows[gid(SWEEP)] | {"name": f"sweep-{at}"}),
            )
            console.until(f"{at}", since)
            changed, sent = screen.cells(), len(console.sent) - since
            console.press(REDRAW)
            if screen.cells() == changed:
                break
        else:
            pytest.fail("cells differ after each redraw")
        assert sent < 1500, "whole lines were sent"
        assert any("全" in cell.data for line in changed for cell in line)
        assert f"sweep-{at}" in "".join(cell.data for line in changed for cell in line)
