"""One host's guard, shims and tasks as real processes, for tests that kill and freeze them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentd.core.log_window import Line
from agentd.lease_file import LeaseWriter, boottime_ns, read_boot_id
from agentd.logs.reader import Dropped
from agentd.shim.record import MARK, read_record
from tests.log_lines import read_log, texts
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
KINDS = ["pidns", "userns", "subreaper"] if IS_ROOT else ["userns", "subreaper"]
WAIT_S = 20.0
# A loop of a shell that says twenty times a second that it is alive, on the clock of leases.
BREATHE = "while :; do read up idle < /proc/uptime; echo $up >> breath; sleep 0.05; done"


def now_s() -> float:
    return boottime_ns() / 1e9


def plain_python() -> str:
    """An interpreter that a plain user may run, our sources within its reach; skips the test where there is none."""
    if not IS_ROOT or shutil.which("setpriv") is None:
        pytest.skip("becoming another user takes root and setpriv")
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        if _open_to_all(Path(python)) and _open_to_all(ROOT / "agentd" / "guard.py"):
            return python
    pytest.skip(f"neither the interpreter nor {ROOT} may be read by a plain user")


def _open_to_all(path: Path) -> bool:
    return path.exists() and all(place.stat().st_mode & 0o001 for place in path.resolve().parents)


class Family:
    """A data directory with a lease and tasks; its processes are root's, or ours, or a plain user's.

    The lease is renewed for `lease_s` at a time, as by a healthy agent, until `silence`."""

    def __init__(self, lease_s: float = 60.0, plain: bool = False) -> None:
        self.user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if plain else []
        self.python = plain_python() if plain else sys.executable
        self.shim = [self.python, "-I", "-S", "-E", str(ROOT / "agentd/shim/__main__.py")]
        self.root = Path(tempfile.mkdtemp(prefix="hf-family-"))
        self.tasks = self.root / "tasks"
        self.tasks.mkdir()
        self.lease = LeaseWriter(str(self.root / "lease"), read_boot_id())
        self._lease_s = lease_s
        self._deadline = 0.0
        self._silent = threading.Event()
        self._grant()
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()
        self._own(self.root)
        self._children: list[subprocess.Popen[bytes]] = []

    def silence(self) -> float:
        """No renewal from here on; when the last one ends (now_s)."""
        self._silent.set()
        self._renewing.join()
        return self._deadline

    def last_breath(self) -> float:
        """The last stamp that any task running `BREATHE` wrote (now_s)."""
        stamps = (self.root / "breath").read_text().split()
        return float(stamps[-1])

    def grant(self, lease_s: float) -> None:
        self.lease.extend(boottime_ns() + int(lease_s * 1e9))

    def _grant(self) -> None:
        self._deadline = now_s() + self._lease_s
        self.grant(self._lease_s)

    def _renew(self) -> None:
        while not self._silent.wait(self._lease_s / 10):
            self._grant()

    def task(self, shell: str, name: str = "group-a/1/0", **changes: Any) -> "Task":
        directory = self.tasks / name
        directory.mkdir(parents=True)
        spec = {
            "shell": shell,
            "env": {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"},
            "cwd": str(self.root),
            "stop_grace_s": 10.0,
            "on_isolation": "stop",
            "log": {"max_bytes": 1 << 20, "files": 8},
            "lease_path": str(self.root / "lease"),
            "token": 7,
            **changes,
        }
        (directory / "spec.json").write_text(json.dumps(spec))
        self._own(self.root)
        return Task(self, directory)

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, **options.pop("environment", {})}
        child = subprocess.Popen([*self.user, *argv], env=environment, start_new_session=True, **options)
        self._children.append(child)
        return child

    def guard(self, agent: Sequence[str], restart: str = "never", **environment: str) -> "subprocess.Popen[bytes]":
        return self.run_guard("--data-dir", str(self.root), "--restart", restart, "--", *agent, environment=environment)

    def run_guard(self, *words: str, **options: Any) -> "subprocess.Popen[bytes]":
        return self.run([self.python, "-I", "-S", "-E", str(ROOT / "agentd/guard.py"), *words], **options)

    def each_kind(self, shell: str, **changes: Any) -> "list[Task]":
        """The same task once for each way of holding it together."""
        return [self.task(shell, f"group-a/1/{n}", isolation=[kind], **changes) for n, kind in enumerate(KINDS)]

    def close(self) -> None:
        self.silence()
        for task in [Task(self, path.parent) for path in self.tasks.glob("*/*/*/spec.json")]:
            for pid in task.processes():
                _kill(pid)
            if (record := read_record(str(task.directory))) is not None:
                _kill(record.shim_pid)
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.wait()
        self.lease.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _own(self, path: Path) -> None:
        if self.user:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(path)], check=True)


class Task:
    def __init__(self, family: Family, directory: Path) -> None:
        self._family = family
        self.directory = directory

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        return self._family.run([*self._family.shim, str(self.directory)], environment=environment)

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = until("pid.json", lambda: self._json("pid.json"))
        return found

    def end(self) -> dict[str, Any] | None:
        return self._json("exit.json")

    def wait_end(self, wait_s: float = WAIT_S) -> dict[str, Any]:
        return until(f"exit.json of {self.directory.name}", self.end, wait_s)

    def stop(self, grace_s: float, why: str = "test") -> None:
        """As the agent does it: written by rename, then the signal."""
        order = self.directory / "stop.tmp"
        order.write_text(json.dumps({"at_ns": boottime_ns(), "grace_s": grace_s, "why": why}))
        order.rename(self.directory / "stop.json")
        os.kill(self.record()["shim_pid"], signal.SIGTERM)

    def items(self) -> list[Line | Dropped]:
        return read_log(str(self.directory / "log"), over=self.end() is not None)

    def lines(self) -> list[str]:
        return texts(self.items())

    def says(self, text: str) -> None:
        until(f"{text!r} in the log", lambda: text in self.lines())

    def processes(self) -> list[int]:
        """Every living process that carries the mark of this task in its environment, wherever its parent is."""
        mark = f"{MARK}={self.directory}".encode()
        return [pid for pid in living() if mark in _environment(pid)]

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads((self.directory / name).read_text())
        except FileNotFoundError:
            return None


def living() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and state(int(name)) not in ("", "Z", "X")]


def state(pid: int) -> str:
    """The letter of /proc, or nothing where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (OSError, ProcessLookupError):
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
