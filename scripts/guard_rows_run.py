"""Rows of the guard table beside the real launcher: command -> two launchers -> the world that was observed."""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from schemas.rules.environment import rank_environment
from schemas.task_group import check_task_group
from tests.docker.engine import torch_environment
from tests.parts import missing
from tests.unit.guards.rows import document_of, rows

# A worker says who it believes to be. With FAIL_ONCE rank 5 ends with 1 in its first life, while the others wait for it
# as in a collective; whoever is started again goes on.
WORKER = """
import json, os, pathlib, sys, time
say = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT")}
place = pathlib.Path(os.environ["OBSERVED"])
(place / f"{os.getpid()}.tmp").write_text(json.dumps(say))
(place / f"{os.getpid()}.tmp").rename(place / f"{os.getpid()}.json")
if os.environ.get("FAIL_ONCE") and say["TORCHELASTIC_RESTART_COUNT"] in (None, "0"):
    sys.exit(1) if say["RANK"] == "5" else time.sleep(600)
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="rows whose command contains this text")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds after which a row counts as hanging")
    args = parser.parse_args()
    torch = torch_environment()
    if torch is None:
        print(missing("torch"), file=sys.stderr)
        return 2
    wrong = 0
    for row in rows("torchrun"):
        if "real" not in row or args.only not in str(row["command"]):
            continue
        expected = not check_task_group(document_of(row)).errors
        formed, seen = observed(row, torch, args.timeout)
        agrees = formed == expected
        wrong += not agrees
        verdict = "accepted" if expected else "refused"
        print(f"{'ok  ' if agrees else 'DIFF'} {verdict:8} {seen:60} {row['command']}", flush=True)
    print(f"{wrong} rows differ from reality")
    return int(wrong > 0)


def observed(row: Mapping[str, Any], torch: Path, timeout_s: float) -> tuple[bool, str]:
    """Whether one world of the declared shape formed and ended well, and what was seen."""
    document = check_task_group({**document_of({**row, "command": "torchrun t.py"})}).document
    assert document is not None
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "t.py").write_text(WORKER)
        (place / "observed").mkdir()
        nodes = document["training"]["n_nodes"]
        port = _free_port()
        launched = [_launch(row, document, torch, place, rank, port) for rank in range(nodes)]
        codes = _ended(launched, timeout_s)
        found = [json.loads(path.read_text()) for path in (place / "observed").glob("*.json")]
    world = document["training"]["world_size"]
    last = max((said["TORCHELASTIC_RESTART_COUNT"] or "0" for said in found), default="0")
    ranks = sorted(int(said["RANK"]) for said in found if (said["TORCHELASTIC_RESTART_COUNT"] or "0") == last)
    sizes = sorted({said["WORLD_SIZE"] for said in found})
    formed = codes == [0] * nodes and ranks == list(range(world)) and sizes == [str(world)]
    shown = ["hangs" if code is None else str(code) for code in codes]
    return formed, f"exit {'/'.join(shown)}, ranks {ranks} of {'/'.join(sizes) or '-'}"


def _launch(
    row: Mapping[str, Any], document: Mapping[str, Any], torch: Path, place: Path, rank: int, port: int
) -> subprocess.Popen[bytes]:
    nodes, cards = document["training"]["n_nodes"], document["training"]["per_node_gpu"]
    environment = rank_environment(
        document, "tg-row", 1, rank, nodes, cards, "127.0.0.1", port, None, None, None, [], True
    )
    environment |= {
        "PATH": f"{torch / 'bin'}:{os.environ['PATH']}",
        "OBSERVED": str(place / "observed"),
        **({"FAIL_ONCE": "1"} if row["real"] == "fail once" else {}),
    }
    # A cleared environment finds no program by its name, and the worker no place to speak.
    command = re.sub(r"\btorchrun\b", str(torch / "bin" / "torchrun"), str(row["command"]))
    command = command.replace("env -i ", f"env -i OBSERVED={place / 'observed'} ")
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _ended(launched: list[subprocess.Popen[bytes]], timeout_s: float) -> list[int | None]:
    """Exit codes, None of those that had to be killed: with all they started."""
    deadline = time.monotonic() + timeout_s
    codes: list[int | None] = []
    for process in launched:
        try:
            codes.append(process.wait(max(0.1, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append(None)
    for process in launched:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in launched:
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return codes


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
