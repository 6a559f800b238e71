"""Keys that come in one burst, as over a slow line, do what they would have done one by one."""

import json

import pytest

from console.core.document_yaml import document_yaml
from tests.snapshots.canned_mesh import gid
from tests.snapshots.example_mesh import LLAMA, example_mesh
from tests.terminal.pty_console import PtyConsole, pty_console
from tests.terminal.served_mesh import served_mesh
from tests.terminal.test_bytes import token_file

pytestmark = pytest.mark.slow

DOWN, LEFT, HOME, END, DELETE, RUBOUT = "\x1b[B", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[3~", "\x7f"
CTRL_Q, CTRL_S = "\x11", "\x13"


def edited(console: PtyConsole, mesh, keys: str) -> None:
    """The clone editor of the llama run, and in one burst: the learning rate of 3e-4 rubbed out, and these keys."""
    document = next(row["document"] for kind, key, row in mesh.rows if (kind, key) == ("group", gid(LLAMA)))
    lines = document_yaml(document).split("\n")
    at = next(at for at, line in enumerate(lines) if line.strip() == "lr: 3e-4")
    console.until("llama3-8b")
    console.press("jjjc")
    console.until("the same as the original")
    console.press(DOWN * at + END + RUBOUT * 4 + keys)


def test_a_filter_is_typed_mended_and_closed_and_the_next_key_is_a_command(tmp_path):
    with served_mesh(example_mesh()) as mesh, pty_console(mesh.address, token_file(tmp_path)) as console:
        console.until("rm-sweep")
        since = len(console.sent)
        console.press(f"/llaxa3-8{LEFT * 3}{LEFT}{RUBOUT}m{END}bb{RUBOUT}-\r")
        console.until("1/1", since)
        since = len(console.sent)
        console.press(f"/{HOME}{DELETE}\rl")
        console.until("tok/s", since)
        console.press("q")
        console.until("/lama3-8b-", since)
        console.press("\x03")
        assert console.ended() == 0


def test_a_document_is_edited_and_submitted(tmp_path):
    mesh = example_mesh()
    with served_mesh(mesh) as serving, pty_console(serving.address, token_file(tmp_path)) as console:
        edited(console, mesh, f"7e-x{RUBOUT}4{CTRL_S}")
        console.until("submitted as")
        ((what, _, _, body),) = mesh.writes
        document = json.loads(body)
        assert (what, document["training"]["hyper_params"]["lr"]) == ("submit", "7e-4")


def test_no_key_leaves_with_what_was_edited_unasked(tmp_path):
    mesh = example_mesh()
    with served_mesh(mesh) as serving, pty_console(serving.address, token_file(tmp_path)) as console:
        edited(console, mesh, f"7e-4{CTRL_Q}")
        console.until("what you changed is lost if you leave")
        since = len(console.sent)
        console.press("\x1b")
        console.until("rm-sweep", since)  # of the list: escape is known as such only after a tenth of a second
        console.press(CTRL_Q)
        assert console.ended() == 0
        assert not mesh.writes
