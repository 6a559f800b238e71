"""Escape is escape, whatever is struck behind it and however soon."""

from pathlib import Path

import pytest
from textual.events import Key

from console.terminal_driver import AltKey, KeyParser
from tests.parts import need
from tests.snapshots.example_mesh import example_mesh
from tests.terminal.pty_console import pty_console
from tests.terminal.served_mesh import served_mesh
from tests.terminal.test_bytes import token_file
from tests.terminal.tmux_console import tmux_console

pytestmark = pytest.mark.slow

ESC, CTRL_C = "\x1b", "\x03"


def keys(*pieces: str) -> list[str]:
    parser = KeyParser()
    heard = [event for piece in pieces for event in parser.feed(piece)]
    if parser.due_s is not None:
        parser._timeout_time = 0.0
    return [event.key for event in [*heard, *parser.tick()] if isinstance(event, Key)]


@pytest.mark.parametrize(
    ("pieces", "meant"),
    [
        ((ESC,), ["escape"]),
        ((f"{ESC}j",), ["escape", "j"]),
        ((ESC, "j"), ["escape", "j"]),
        ((f"{ESC}2jj",), ["escape", "2", "j", "j"]),  # Textual: a trade mark sign
        ((f"{ESC}{ESC}",), ["escape", "escape"]),
        ((f"{ESC}\r",), ["escape", "enter"]),
        ((f"{ESC}\x03",), ["escape", "ctrl+c"]),
        ((f"{ESC}/ab",), ["escape", "slash", "a", "b"]),
        ((f"{ESC}[A{ESC}OB{ESC}[3~j",), ["up", "down", "delete", "j"]),
        ((f"{ESC}[1;3A",), ["alt+up"]),
        ((f"{ESC}O",), ["escape", "O"]),  # once nothing came behind it
        ((f"{ESC}[",), ["escape", "left_square_bracket"]),
        ((f"{ESC}b", f"{ESC}f", f"{ESC}\x7f"), ["ctrl+left", "ctrl+right", "ctrl+w"]),
    ],
)
def test_escape_and_the_key_behind_it_are_two(pieces: tuple[str, ...], meant: list[str]) -> None:
    assert keys(*pieces) == meant


def test_what_is_a_word_key_in_a_text_is_escape_and_a_letter_elsewhere() -> None:
    (word,) = KeyParser().feed(f"{ESC}f")
    assert isinstance(word, AltKey) and [key.key for key in word.keys] == ["escape", "f"]


def test_a_key_behind_the_escape_that_left_a_screen_is_for_the_next_one(tmp_path: Path) -> None:
    with served_mesh(example_mesh()) as mesh, pty_console(mesh.address, token_file(tmp_path)) as console:
        console.until("rm-sweep")
        for burst, shown in (("d", "hyper_params"), (f"{ESC}2", "WANTS"), (f"{ESC}/llama3-8b\r", "1/1")):
            since = len(console.sent)
            console.press(burst)
            console.until(shown, since)
        since = len(console.sent)
        console.press(f"{ESC}/xx yy")
        console.until("no row holds", since)
        since = len(console.sent)
        console.press(f"{ESC}bx{ESC}f{ESC}\x7fz")  # alt and b, f, rubout: by words, in a line that is typed
        console.until("z'; esc shows", since)
        console.press(CTRL_C + CTRL_C)
        assert console.ended() == 0


def test_a_dialog_takes_no_key_that_was_struck_before_it_was_seen(tmp_path: Path) -> None:
    mesh = example_mesh()
    with served_mesh(mesh) as serving, pty_console(serving.address, token_file(tmp_path)) as console:
        console.until("rm-sweep")
        console.press("jjj" + "sy")
        console.until("Stop this group")
        since = len(console.sent)
        console.press(f"{ESC}y")  # Textual: y with alt, and with the letter y
        console.until("is in the clipboard", since)
        console.press("q")
        assert console.ended() == 0
        assert not mesh.writes


def test_escape_and_a_key_through_tmux(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    need("tmux")
    directory = tmp_path_factory.mktemp("t")
    with (
        served_mesh(example_mesh()) as mesh,
        tmux_console(directory, mesh.address, token_file(tmp_path), size=(100, 30)) as tmux,
    ):
        tmux.until("rm-sweep")
        tmux.press("z")
        tmux.until("problems only")
        tmux.press("Escape", "3")
        tmux.until(lambda screen: "▸ nodes" in screen)
        tmux.press("Escape", "j")
        tmux.until(lambda screen: "▸ groups" in screen and "problems only" not in screen and " 2/" in screen)
        tmux.press("q")
        tmux.until("shell>")
