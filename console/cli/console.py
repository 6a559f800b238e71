"""heteroflow console"""

import argparse
import contextlib
import gc
import os
import sys
import termios
import traceback
from collections.abc import Mapping
from typing import Any

from console.cli.terminal import Terminal
from console.cli.verb import Verb
from console.core.exit_codes import OK
from schemas.errors import InvalidInput

_CRASHED = 70  # EX_SOFTWARE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--read-only", action="store_true", help="nothing can be changed; keys that would are gone")
    parser.add_argument(
        "--theme",
        choices=("dark", "light", "ansi"),
        help="ansi: the terminal's colours, and the default where it has 16",
    )
    parser.add_argument("--graph", choices=("braille", "block", "ascii"), default=None, help="how curves are drawn")
    parser.add_argument("--no-mouse", action="store_true", help="the mouse stays with the terminal, to select text")
    parser.add_argument(
        "--view", choices=("groups", "queue", "nodes", "mesh", "alerts"), default="groups", help="the first screen"
    )


async def _run(args: argparse.Namespace, terminal: Terminal, client: Any) -> int:
    refusal = _no_console(terminal)
    if refusal:
        raise InvalidInput("no_terminal", refusal, "`heteroflow ls`, `show` and `logs` work everywhere.")
    _before_textual(terminal)
    from console.app import Console, now_ms, restore_terminal
    from console.endpoints import find_target
    from console.hang_up import end_with
    from console.keymap import Keymap, read_overrides
    from console.store.session import Session

    target = find_target(
        args.node or (), args.data_dir, args.token_file, terminal.environment, args.context, args.ca_file
    )
    keymap = Keymap(read_overrides(terminal.environment), args.read_only)
    glyphs = args.graph or ("braille" if _speaks_unicode(terminal) else "ascii")
    theme = args.theme or ("ansi" if sixteen_colours(terminal.environment) else "dark")
    app = Console(Session(target, now_ms, args.timeout), keymap, theme, glyphs, args.view)
    cooked = termios.tcgetattr(sys.stdin.fileno())
    end_with(sys.stdin.fileno())
    try:
        code = await app.run_async(mouse=not args.no_mouse)
    finally:
        # The terminal may be gone by now.
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, cooked)
        restore_terminal(_raw_write)
    if app.crash is not None:
        return _told(app.crash, terminal)
    return OK if code is None else code


def _no_console(terminal: Terminal) -> str:
    """Why there can be none here; "" where there can."""
    if not terminal.is_tty or not sys.stdin.isatty():
        return "the console needs a terminal, and this is none"
    if terminal.environment.get("TERM", "") in ("", "dumb"):
        return f"the console cannot paint on TERM={terminal.environment.get('TERM') or '(unset)'}"
    return ""


def _before_textual(terminal: Terminal) -> None:
    """Read once, when Textual is loaded: no animation, no smooth scrolling, and as few frames as a key can wait for,
    because the line may be slow."""
    # The rows of a large mesh would be walked over again and again while they come; nearly nothing here is cyclic.
    gc.set_threshold(50_000, 20, 20)
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # exported by some parent: they would hold against the terminal's own size for ever
    for name, value in (("TEXTUAL_ANIMATIONS", "none"), ("TEXTUAL_SMOOTH_SCROLL", "0"), ("TEXTUAL_FPS", "30")):
        os.environ.setdefault(name, value)


def sixteen_colours(environment: Mapping[str, str]) -> bool:
    """As Textual tells it from the environment; in 16 colours, those of the other themes fall to shades of grey."""
    deep = environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit")
    return not deep and environment.get("TERM", "").rpartition("-")[2] not in ("256color", "kitty")


def _speaks_unicode(terminal: Terminal) -> bool:
    return (getattr(terminal.out, "encoding", None) or "").lower().replace("-", "") == "utf8"


def _raw_write(text: str) -> None:
    os.write(sys.stdout.fileno(), text.encode("ascii"))


def _told(crash: BaseException, terminal: Terminal) -> int:
    home = terminal.environment.get("XDG_STATE_HOME") or os.path.join(
        terminal.environment.get("HOME", "/tmp"), ".local/state"
    )
    path = os.path.join(home, "heteroflow", "console-crash.log")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(crash))
        where = f"the traceback is in {path}"
    except OSError as error:
        where = f"{path} could not be written ({error.strerror})"
    with contextlib.suppress(OSError):
        terminal.note(f"the console ended through a defect ({type(crash).__name__}); {where}. The mesh is untouched.")
    return _CRASHED


VERB = Verb(_add_arguments, _run, needs_client=lambda args: False)
