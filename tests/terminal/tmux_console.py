"""The console in a shell in tmux, as one has it over SSH: real keys in, and the screen as the terminal holds it."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 40.0
LOOK_S = 0.1
PROMPT = "shell> "


class TmuxConsole:
    """A tmux of its own, so that nobody's settings matter. Keys have tmux's names: Enter, Escape, Space, C-z."""

    def __init__(self, directory: Path, columns: int, rows: int) -> None:
        self._socket = directory / "tmux"
        env = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
        env |= {"PS1": PROMPT, "LANG": "C.UTF-8", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT), "TERM": "xterm"}
        # Also where the console looks for keys and context files.
        env |= {"HOME": str(directory), "XDG_CONFIG_HOME": str(directory), "XDG_STATE_HOME": str(directory)}
        shell = ("bash", "--norc", "--noprofile")
        size = ("-x", str(columns), "-y", str(rows))
        self._tmux("new-session", "-d", *size, *shell, env=env)

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        command = ["tmux", "-f", os.devnull, "-S", str(self._socket), "-u", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def screen(self, colours: bool = False) -> str:
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def modes(self) -> dict[str, str]:
        """What a program may have left behind: the other screen, a hidden cursor, the mouse."""
        names = ("alternate_on", "cursor_flag", "mouse_any_flag", "keypad_flag")
        values = self._tmux("display-message", "-p", " ".join(f"#{{{name}}}" for name in names)).split()
        return dict(zip(names, values, strict=True))

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def until(self, shown: str | Callable[[str], Any], within_s: float = DEADLINE_S) -> str:
        """The screen once it shows this text, or this of it is true."""
        end = time.monotonic() + within_s
        while True:
            screen = self.screen()
            if shown in screen if isinstance(shown, str) else shown(screen):
                return screen
            assert time.monotonic() < end, f"{shown!r} did not come; the screen is\n{screen}"
            time.sleep(LOOK_S)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, timeout=DEADLINE_S)


@contextmanager
def tmux_console(
    directory: Path, address: str, token_file: Path, *options: str, size: tuple[int, int] = (120, 40)
) -> Iterator[TmuxConsole]:
    """directory: short, as socket paths are. The console is started by its command line in the shell."""
    tmux = TmuxConsole(directory, *size)
    try:
        tmux.until(PROMPT.strip())
        words = [sys.executable, "-m", "console.cli.main", "console", "--node", address]
        tmux.type(shlex.join([*words, "--token-file", str(token_file), *options]))
        tmux.press("Enter")
        yield tmux
    finally:
        tmux.close()
