"""scripts/try as a newcomer runs it: a fresh copy, a plain user where this one is root, with and without a terminal."""

import fcntl
import json
import os
import pty
import pwd
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.loopback_mesh import processes_of
from tests.docker.engine import torch_environment
from tests.terminal.pty_console import PtyConsole

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90.0
TORCHRUN_LIMIT_S = 180.0
DEADLINE_S = 60.0
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "build", "dist")

# tbparse brings pandas and TensorBoard, whose imports warn; their warnings are not about this project.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(360), pytest.mark.filterwarnings("ignore")]


def environment(home: Path, **more: str) -> dict[str, str]:
    ours = {"HOME": str(home), "TMPDIR": str(home), "HETEROFLOW_VENV": sys.prefix, "HETEROFLOW_INSTALL": "never"}
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | ours | more


def plain_user(home: Path) -> dict[str, Any]:
    """Popen arguments for an ordinary user, where this one is root and that one can read the environment."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    user: dict[str, Any] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    probe = [sys.executable, "-c", "import aiohttp, apsw, numpy"]
    try:
        done = subprocess.run(probe, cwd="/", env=environment(home), capture_output=True, text=True, **user)
    except PermissionError:
        return {}
    return user if done.returncode == 0 else {}


@pytest.fixture
def home() -> Iterator[Path]:
    # Not under pytest's own directory, which only its owner may enter.
    place = Path(f"/tmp/heteroflow-newcomer-{os.getpid()}-{time.monotonic_ns()}")
    place.mkdir(mode=0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def user(home: Path) -> dict[str, Any]:
    """A fresh copy in home/checkout that belongs to this user."""
    shutil.copytree(ROOT, home / "checkout", ignore=LEFT_OUT, symlinks=True)
    user = plain_user(home)
    if user:
        for path in [home, *home.rglob("*")]:
            os.lchown(path, user["user"], user["group"])
    return user


def run_try(home: Path, user: dict[str, Any], **variables: str) -> tuple[str, Path]:
    begun = time.monotonic()
    done = subprocess.run(
        ["./scripts/try", "--keep"],
        cwd=home / "checkout",
        env=environment(home, **variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TORCHRUN_LIMIT_S + 30,
        **user,
    )
    elapsed = time.monotonic() - begun
    assert done.returncode == 0, done.stdout
    assert elapsed <= (TORCHRUN_LIMIT_S if variables else LIMIT_S), done.stdout
    found = re.search(r"Everything it left is in (\S+)", done.stdout)
    assert found, done.stdout
    return done.stdout, Path(found[1])


def check_result(said: str, left: Path) -> None:
    from tbparse import SummaryReader

    scalars = SummaryReader(str(left / "checkpoints" / "tb_logs")).scalars
    losses = scalars[scalars["tag"] == "train/loss"].sort_values("step")["value"].tolist()
    assert len(losses) > 10 and losses[-1] < losses[0]
    newest = max((left / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    meta = json.loads((newest / "meta.json").read_text())
    assert meta["world"] == 4 and meta["step"] == len(losses)
    assert meta["loss"] == pytest.approx(losses[-1], rel=1e-5)
    assert "No console, because there is no terminal" in said
    for state in ("starting", "running", "completed"):
        assert state in said
    assert processes_of(left) == []


def runs(program: Path, user: dict[str, Any]) -> bool:
    """Whether that user may: its environment can be a link into another one's home."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False, **user).returncode == 0
    except PermissionError:
        return False


def test_without_a_terminal_it_tells_one_job_and_leaves_no_process(home: Path, user: dict[str, Any]):
    torch = torch_environment()
    places = []
    for variables in ({}, {"HETEROFLOW_TORCH": str(torch)} if torch else {}):
        said, left = run_try(home, user, **variables)
        check_result(said, left)
        if not variables:
            trainer = "training with numpy, because torch cannot"
        elif torch is not None and runs(torch / "bin" / "python", user):
            trainer = "training with torchrun, because torch 2"
        else:
            trainer = f"training with numpy, because HETEROFLOW_TORCH={torch} has no bin/python that may be run"
        assert trainer in said
        places.append(left)
    assert places[0] != places[1]


@contextmanager
def try_in_terminal(home: Path, user: dict[str, Any], *options: str, **variables: str) -> Iterator[PtyConsole]:
    """With the pseudo-terminal as its own, so that keys become signals as they do for people."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.fchmod(theirs, 0o666)
    cooked = termios.tcgetattr(ours)
    process = subprocess.Popen(
        ["setsid", "--ctty", "./scripts/try", *options],
        cwd=home / "checkout",
        env=environment(home, **{"TERM": "xterm-256color", **variables}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        **user,
    )
    os.close(theirs)
    terminal = PtyConsole(process, ours, cooked)
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.terminate()  # a failed test leaves no mesh either
            terminal.ended()
        terminal.close()


def check_nothing_left(home: Path, terminal: PtyConsole) -> None:
    assert processes_of(home) == []
    assert list(home.glob("heteroflow-try-*")) == []
    assert terminal.is_cooked() and terminal.modes_left_on() <= {7, 25}


def test_in_a_terminal_it_opens_the_console_and_ends_the_mesh_with_it(home: Path, user: dict[str, Any]):
    with try_in_terminal(home, user) as terminal:
        for shown in ("opening the console", "numpy-two-node", "fails-at-80", "first-steps", "needs 3 nodes x 2 GPUs"):
            terminal.until(shown)
        # A row is sent anew when its words change.
        for shown in ("running", "exited 3", "completed", "train/loss"):
            terminal.until(shown)
        assert processes_of(home) != []
        left_at = len(terminal.sent)
        terminal.press("q")
        terminal.until("The mesh was stopped, and no process of it is left.", left_at)
        terminal.until("Next: ", left_at)
        assert terminal.ended() == 0
        check_nothing_left(home, terminal)


@pytest.mark.parametrize("moment", ["Starting a mesh", "training with", "opening the console", "first-steps"])
def test_ctrl_c_at_any_moment_leaves_nothing(home: Path, user: dict[str, Any], moment: str):
    with try_in_terminal(home, user) as terminal:
        terminal.until(moment)
        terminal.press("\x03")
        terminal.read(0.5)
        terminal.press("\x03")  # somebody impatient
        # In the console it is a key, and ends like q.
        assert terminal.ended() in (0, 130)
        check_nothing_left(home, terminal)


def test_a_terminal_that_goes_away_takes_the_mesh_with_it(home: Path, user: dict[str, Any]):
    with try_in_terminal(home, user) as terminal:
        terminal.until("first-steps")
        terminal.hang_up()
        terminal.ended()
        assert processes_of(home) == [] and list(home.glob("heteroflow-try-*")) == []


def test_a_dumb_terminal_and_a_wish_for_no_console(home: Path, user: dict[str, Any]):
    for options, term, why in ((("--no-console",), "xterm", "--no-console was given"), ((), "dumb", "on TERM=dumb")):
        with try_in_terminal(home, user, *options, TERM=term) as terminal:
            terminal.until(why)
            terminal.press("\x03")
            assert terminal.ended() == 130
            check_nothing_left(home, terminal)
