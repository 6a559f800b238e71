"""A real mesh, a real job, a real pseudo-terminal: watch, filter, read the log, lose the attached node, stop."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.loopback_mesh import LoopbackMesh
from tests.terminal.pty_console import pty_console
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WORKER = "import time\nfor i in range(100000):\n    print(f'step {i} of rank', flush=True)\n    time.sleep(0.2)\n"
DEADLINE_S = 60.0


@pytest.fixture
def mesh() -> Iterator[LoopbackMesh]:
    # Socket paths must be short, which pytest's own directory is not.
    directory = Path(tempfile.mkdtemp(prefix="hf-console-"))
    running = LoopbackMesh(directory)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


def submitted(mesh: LoopbackMesh, name: str) -> str:
    worker = mesh.directory / "worker.py"
    worker.write_text(WORKER)
    document = {
        "name": name,
        "task_type": "training",
        "training": {
            "framework": "ddp",
            "launcher": "script",
            "n_nodes": 1,
            "per_node_gpu": 2,
            "checkpoint_path": str(mesh.directory / "checkpoints" / name),
        },
        "task": {"command": [sys.executable, str(worker)], "gpu_required": 2, "stop_grace_s": 5},
    }
    return str(mesh.api(2).call("POST", "/task-groups", document)["group_id"])


def test_the_attached_node_dies_and_nothing_of_the_work_does(mesh):
    groups = [submitted(mesh, f"job-{letter}") for letter in "ab"]
    detail = {group: mesh.api(2).call("GET", f"/task-groups/{group}") for group in groups}
    until("both run", lambda: all(status(mesh, 2, group) == "running" for group in groups))
    detail = {group: mesh.api(2).call("GET", f"/task-groups/{group}") for group in groups}
    # The console is attached to a host on which the watched job does not run.
    watched = next(group for group in groups if detail[group]["nodes"])
    home = int(detail[watched]["nodes"][0].rsplit("-", 1)[1])
    attached = next(node for node in (1, 2, 3) if node != home)
    other = next(node for node in (1, 2, 3) if node not in (home, attached))
    with pty_console(mesh.address(attached), mesh.token_file) as console:
        console.until("job-a")
        console.press(f"/{detail[watched]['name']}\r")
        console.until("1/1")
        console.press("l")
        console.until("following")
        console.until("step 5 of rank")
        guard = mesh.guards[attached - 1]
        family = [pid for pid in processes_of_agent(mesh, attached) if pid != guard.pid]
        guard.send_signal(signal.SIGKILL)
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        since = len(console.sent)
        console.until(f"node-{attached} went away", since)
        console.until("of rank", len(console.sent))
        since = len(console.sent)
        console.press("\x1b")
        console.until("1/1", since)  # the filter is as it was
        console.press("s")
        console.until("Stop this group")
        console.press("y")
        console.until("X stopped")
        until("the group stopped", lambda: status(mesh, other, watched) == "stopped")
        events = mesh.api(other).call("GET", f"/task-groups/{watched}/fault-events")["events"]
        assert [event["kind"] for event in events].count("stopping") == 1
        assert all(status(mesh, other, group) != "stopped" for group in groups if group != watched)
        console.press("\x03")
        assert console.ended() == 0


def status(mesh: LoopbackMesh, node: int, group: str) -> str:
    return str(mesh.api(node).call("GET", f"/task-groups/{group}")["status"])


def processes_of_agent(mesh: LoopbackMesh, node: int) -> list[int]:
    """Agent and voter of a node; the tasks there are shims of their own."""
    wanted = f"--data-dir {mesh.data_dir(node)}"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if wanted + " " in command or wanted + "/voter" in command:
                found.append(int(entry.name))
    return found
