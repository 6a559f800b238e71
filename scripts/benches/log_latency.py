"""From a rank's print to the text on a console's screen, beside a bare reader of the same log stream in the same run.

A group of two ranks says the time again and again; console and reader are attached to the third node, which has none of
them. The screen is read with a terminal emulator, so a line counts when it stands there, not when bytes of it came.
"""

import json
import os
import re
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from scripts.benches.console_bench.terminal import Terminal
from scripts.benches.submit import percentile
from scripts.loopback_mesh import LoopbackMesh

ROOT = Path(__file__).resolve().parents[2]
LINES = int(os.environ.get("HF_BENCH_LOG_LINES", "150"))  # of each rank
WAIT_S = 60.0
BUDGETS = {"console_p95_ms": "<= 500"}
# The pauses differ, so that lines fall on every phase of whatever ticks on their way.
WORKER = """
import os, random, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.1)
for at in range(int(sys.argv[1])):
    print(f"said {time.time_ns()}", flush=True)
    time.sleep(random.uniform(0.05, 0.25))
time.sleep(600)
"""
SAID = re.compile(r"said (\d{19})")


def _go(mesh: LoopbackMesh) -> Path:
    return mesh.directory / "go"


def _submitted(mesh: LoopbackMesh) -> str:
    worker = mesh.directory / "worker.py"
    worker.write_text(WORKER)
    document = {
        "name": "says-the-time",
        "task_type": "training",
        "training": {"framework": "ddp", "n_nodes": 2, "per_node_gpu": 1},
        "task": {"command": [sys.executable, str(worker), str(LINES), str(_go(mesh))], "gpu_required": 1},
    }
    group = str(mesh.api().call("POST", "/task-groups", document)["group_id"])
    end = time.monotonic() + WAIT_S
    while mesh.api().call("GET", f"/task-groups/{group}")["status"] != "running":
        if time.monotonic() > end:
            raise TimeoutError("the group did not start")
        time.sleep(0.1)
    return group


class Reader:
    """The stream of the log through one node, read as fast as it comes. heard: `{said_ns: seconds it took}`."""

    def __init__(self, address: str, token: str, group: str) -> None:
        self.heard: dict[int, float] = {}
        url = f"http://{address}/api/v1/task-groups/{group}/logs?follow=true"
        self._request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with urllib.request.urlopen(self._request, timeout=WAIT_S) as stream:
            for line in stream:
                now_ns = time.time_ns()
                if found := SAID.match(str(json.loads(line).get("text", ""))):
                    self.heard[int(found[1])] = (now_ns - int(found[1])) / 1e9


def _seen(terminal: Terminal, to_clock_s: float) -> dict[int, float]:
    """`{said_ns: seconds until it stood on the screen}`."""
    seen: dict[int, float] = {}
    for at in [at for at, _ in terminal.pieces]:
        for line in terminal.shown(at):
            if found := SAID.search(line):
                said_ns = int(found[1])
                seen.setdefault(said_ns, at + to_clock_s - said_ns / 1e9)
    return seen


def main() -> dict[str, Any]:
    # Socket paths must be short.
    with tempfile.TemporaryDirectory(prefix="hf-log-", ignore_cleanup_errors=True) as directory:
        mesh = LoopbackMesh(Path(directory))
        try:
            mesh.start()
            return _measured(mesh)
        finally:
            mesh.stop()


def _measured(mesh: LoopbackMesh) -> dict[str, Any]:
    group = _submitted(mesh)
    placed = mesh.api().call("GET", f"/task-groups/{group}")["nodes"]
    third = next(node for node in range(1, mesh.nodes + 1) if f"node-{node}" not in placed)
    connection = ["--node", mesh.address(third), "--token-file", str(mesh.token_file)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(mesh.directory), "TERM": "xterm-256color"}
    environment |= {"COLORTERM": "truecolor", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    terminal = Terminal([sys.executable, "-m", "console.cli.main", "console", *connection], environment, ROOT)
    try:
        terminal.until("says-the-time", WAIT_S)
        terminal.press("l")
        terminal.until("all ranks", WAIT_S)
        reader = Reader(mesh.address(third), mesh.token_file.read_text().strip(), group)
        _go(mesh).touch()
        end = time.monotonic() + WAIT_S + LINES * 0.25
        while len(reader.heard) < 2 * LINES and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(2.0)
        seen = _seen(terminal, time.time() - time.monotonic())
    finally:
        terminal.close()
    if len(seen) < 2 * LINES or len(reader.heard) < 2 * LINES:
        raise RuntimeError(f"of {2 * LINES} lines the console showed {len(seen)}, the reader heard {len(reader.heard)}")
    figures: dict[str, float] = {"lines": len(seen)}
    for name, took in (("console", seen), ("stream", reader.heard)):
        for share in (50, 95):
            figures[f"{name}_p{share}_ms"] = percentile(list(took.values()), share / 100) * 1000
        figures[f"{name}_max_ms"] = max(took.values()) * 1000
    ratio = figures["console_p95_ms"] / figures["stream_p95_ms"]
    return {"figures": figures, "ratios": {"console_to_stream_p95": ratio}, "budgets": BUDGETS}
