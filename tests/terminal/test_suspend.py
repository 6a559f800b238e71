"""Ctrl-Z gives the shell back with the terminal as it was, and fg the console with the screen as it is now."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.snapshots.canned_mesh import TOKEN
from tests.snapshots.example_mesh import example_mesh
from tests.terminal.served_mesh import served_mesh
from tests.terminal.tmux_console import PROMPT, TmuxConsole, tmux_console

pytestmark = [pytest.mark.slow, pytest.mark.need("tmux")]
SHELL = {"alternate_on": "0", "cursor_flag": "1", "mouse_any_flag": "0", "keypad_flag": "0"}


@pytest.fixture
def console() -> Iterator[TmuxConsole]:
    # Socket paths must be short, which pytest's own directory is not.
    directory = Path(tempfile.mkdtemp(prefix="hf-tmux-"))
    token_file = directory / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    try:
        with (
            served_mesh(example_mesh()) as mesh,
            tmux_console(directory, mesh.address, token_file, size=(80, 24)) as console,
        ):
            console.until("rm-sweep")
            yield console
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def filled(screen: str) -> int:
    """Lines down to the console's last one, where its title is in the first."""
    lines = screen.rstrip("\n").split("\n")
    return len(lines) if "groups" in lines[0] else 0


def suspended(console: TmuxConsole) -> None:
    console.press("C-z")
    console.until("Stopped")
    assert console.modes() == SHELL
    # The shell echoes what is typed and edits its line: the terminal is in its own mode again.
    console.type("echo a-b-x")
    console.press("BSpace")
    console.type("c | tr - +")
    console.press("Enter")
    console.until("a+b+c")


def test_the_console_comes_back_as_it_was_left(console):
    console.press("/")
    console.type("llama")
    console.press("Enter")
    console.until(lambda screen: "/llama" in screen and "rm-sweep" not in screen)
    for columns, rows in ((80, 24), (120, 40)):
        suspended(console)
        console.resize(columns, rows)
        console.press(*"fg", "Enter")
        console.until(lambda screen, rows=rows: "/llama" in screen and filled(screen) == rows)
        assert console.modes()["alternate_on"] == "1" and console.modes()["mouse_any_flag"] == "1"
    console.press("Escape")
    console.until("rm-sweep")
    console.press("q")
    console.until(lambda screen: screen.rstrip().endswith(PROMPT.strip()))
    assert console.modes() == SHELL
