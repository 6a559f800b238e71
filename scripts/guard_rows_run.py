"""Rows of the guard table beside the real launcher: command -> a launcher on each node -> the world that was observed.

Every node is a network namespace, so that a loopback address or a node's own name reaches no other node.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from schemas.rules.frameworks.placement import Placement
from schemas.rules.frameworks.rank import RankStart, rank_start
from schemas.task_group import check_task_group
from scripts.frameworks_run import KINDS, environment_of
from tests.docker.engine import torch_environment
from tests.netns.hosts import Host, hosts
from tests.parts import missing
from tests.unit.guards.rows import document_of, every_row

# The environment of `scripts/frameworks` that holds the launcher a row names; none: the machine's own.
_VENVS = {
    "torchrun": "torchrun",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed-launcher",
    "paddle": "paddle",
    "mpi": None,
}
_PORT_FIRST = 23000
# A worker says who it believes to be, and meets the others where it believes rank 0 to be. With FAIL_ONCE rank 5 ends
# with 1 in its first life, while the others wait for it as in a collective; whoever is started again goes on.
WORKER = """
import json, os, pathlib, socket, sys, time
env = os.environ
rank = next((env[name] for name in ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK") if name in env), None)
size = next((env[name] for name in ("RANK", "PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE") if name in env), None)
size = env.get("WORLD_SIZE") if "RANK" in env else size
life = env.get("TORCHELASTIC_RESTART_COUNT") or "0"
place = pathlib.Path(os.environ["OBSERVED"])
(place / f"{os.getpid()}.tmp").write_text(json.dumps({"rank": rank, "size": size, "life": life}))
(place / f"{os.getpid()}.tmp").rename(place / f"{os.getpid()}.json")
if env.get("FAIL_ONCE") and life == "0":
    sys.exit(1) if rank == "5" else time.sleep(600)
first = "127.0.0.1" if "OMPI_COMM_WORLD_RANK" in env else env.get("MASTER_ADDR", "127.0.0.1")
first = env.get("PADDLE_TRAINER_ENDPOINTS", first).split(",")[0].split(":")[0]
port, until = int(env["OBSERVED_PORT"]), time.monotonic() + 15
if rank == "0":
    with socket.create_server(("", port)) as door:
        door.settimeout(15)
        came = [door.accept()[0] for _ in range(int(size) - 1)]
        for one in came:
            one.sendall(b"!")
elif rank is not None:
    while True:
        try:
            with socket.create_connection((first, port), 5) as door:
                door.settimeout(15)
                sys.exit(0 if door.recv(1) else 3)
        except OSError:
            if time.monotonic() > until:
                sys.exit(3)
            time.sleep(0.2)
"""


@dataclass(frozen=True, slots=True)
class Seen:
    formed: bool
    text: str


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="rows whose command contains this text")
    parser.add_argument("--launcher", default="", choices=["", *_VENVS], help="rows of this launcher")
    parser.add_argument("--timeout", type=float, default=45.0, help="seconds after which a row counts as hanging")
    parser.add_argument("--jobs", type=int, default=2, help="rows at once")
    args = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("needs root and the program ip, for network namespaces", file=sys.stderr)
        return 2
    torch = torch_environment()
    if torch is None:
        print(missing("torch"), file=sys.stderr)
        return 2
    chosen = [row for _, row in every_row() if "real" in row and args.only in str(row["command"])]
    chosen = [row for row in chosen if args.launcher in ("", row["real"].split()[0])]
    names = {row["real"].split()[0] for row in chosen}
    venvs = {name: environment_of(KINDS[kind], torch) for name in sorted(names) if (kind := _VENVS[name])}
    with tempfile.TemporaryDirectory() as directory:
        count = max(1, args.jobs)
        with hosts(Path(directory), [f"n{number}" for number in range(2 * count)], sys.executable) as made:
            free: SimpleQueue[tuple[int, Sequence[Host]]] = SimpleQueue()
            for number in range(count):
                free.put((_PORT_FIRST + 1000 * number, made[2 * number : 2 * number + 2]))

            def told(row: Mapping[str, Any]) -> bool:
                port, pair = free.get()
                refused = bool(check_task_group(document_of(row)).errors)
                expected = "forms" in row or not refused
                seen = observed(row, venvs.get(row["real"].split()[0]), pair, port, args.timeout)
                free.put((port + 10, pair))
                agrees = seen.formed == expected
                verdict = "refused" if refused else "accepted"
                print(f"{'ok  ' if agrees else 'DIFF'} {verdict:8} {seen.text:60} {row['command']!r}", flush=True)
                return agrees

            with ThreadPoolExecutor(count) as pool:
                agreed = list(pool.map(told, chosen))
    print(f"{len(agreed)} rows run, {agreed.count(False)} differ from reality")
    return int(not all(agreed))


def observed(row: Mapping[str, Any], venv: Path | None, pair: Sequence[Host], port: int, timeout_s: float) -> Seen:
    """Whether one world of the declared shape formed, met and ended well, and what was seen."""
    right = {name: value for name, value in row.items() if name != "command"}
    document = check_task_group(document_of(right)).document
    assert document is not None, row
    nodes = document["training"]["n_nodes"]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "observed").mkdir()
        launched = []
        for rank in range(nodes):
            start = _start(document, row, place, rank, pair, port)
            launched.append(_launch(row, start, venv, place, pair[rank], port))
        codes = _ended(launched, timeout_s)
        _end_all_in(pair)
        found = [json.loads(path.read_text()) for path in (place / "observed").glob("*.json")]
    world = document["training"]["world_size"]
    last = max((said["life"] for said in found), default="0")
    ranks = sorted(str(said["rank"]) for said in found if said["life"] == last)
    sizes = sorted({str(said["size"]) for said in found})
    formed = codes == [0] * nodes and ranks == sorted(map(str, range(world))) and sizes == [str(world)]
    shown = ["hangs" if code is None else str(code) for code in codes]
    return Seen(formed, f"exit {'/'.join(shown)}, ranks {','.join(ranks) or '-'} of {'/'.join(sizes) or '-'}")


def _start(
    document: Mapping[str, Any], row: Mapping[str, Any], place: Path, rank: int, pair: Sequence[Host], port: int
) -> RankStart:
    home = place / f"node-{rank}"
    (home / "files").mkdir(parents=True)
    training = document["training"]
    placement = Placement(
        group_id="tg-row",
        attempt=1,
        rank=rank,
        nodes=training["n_nodes"],
        cards=training["per_node_gpu"],
        master_addr=pair[0].address if _apart(row) else "127.0.0.1",
        master_port=port,
        addresses=tuple(host.address if _apart(row) else "127.0.0.1" for host in pair),
        simulated_gpus=True,
        checkpoint_path=str(home / "checkpoints"),
        files_dir=str(home / "files"),
    )
    start = rank_start(document, placement, True, {})
    for file, text in start.files.items():
        (home / "files" / file).write_text(text)
    for script in ("t.py", "train.py"):
        (home / script).write_text(WORKER)
    return start


def _launch(
    row: Mapping[str, Any], start: RankStart, venv: Path | None, place: Path, host: Host, port: int
) -> subprocess.Popen[bytes]:
    home = Path(start.env["HETEROFLOW_REPORT"]).parent.parent
    observed = {"OBSERVED": str(place / "observed"), "OBSERVED_PORT": str(port + 5)}
    environment = start.env | observed | {"PET_RDZV_CONF": "timeout=20", "HOME": str(home), "LANG": "C.UTF-8"}
    # The machine's cores are few, and DeepSpeed looks for cards that are not there.
    environment |= {"DS_ACCELERATOR": "cpu", "HOSTNAME": host.name}
    environment |= {"FAIL_ONCE": "1"} if row["real"].endswith("fail once") else {}
    path = f"{venv / 'bin'}:{os.environ['PATH']}" if venv else os.environ["PATH"]
    environment["PATH"] = path
    command = row["command"]
    if isinstance(command, str):
        if re.search(r"\benv -i |\bsudo torchrun", command):
            # A cleared environment finds no program by its name, and the worker no place to speak.
            command = re.sub(r"\btorchrun\b", str((venv or Path("/usr")) / "bin" / "torchrun"), command)
            said = " ".join(f"{name}={value}" for name, value in observed.items())
            command = command.replace("env -i ", f"env -i {said} ")
        argv = ["/bin/sh", "-c", command]
    else:
        argv = list(command)
    return subprocess.Popen(
        host.words(*argv) if _apart(row) else argv,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=(place / f"{host.name}.log").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end_all_in(pair: Sequence[Host]) -> None:
    """What a launcher started in sessions of their own, or a command left behind."""
    for host in pair:
        listed = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True)
        for pid in listed.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _apart(row: Mapping[str, Any]) -> bool:
    """Not where nodes must be known by a name: all namespaces have that of this machine."""
    return not row["real"].endswith("on one host")


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


if __name__ == "__main__":
    sys.exit(main())
