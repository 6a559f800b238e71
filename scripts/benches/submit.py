"""From submit to the first line of every rank, beside the same trainer started by hand in the same run, and the same in
containers beside `docker run`.

All moments are on one clock: just before the POST, and when the shim read a rank's first line. In containers the second
one is when it came to somebody who follows the log through another node, as it comes to who called `docker run`.
Containers are measured where an engine may be started by hand (root, dockerd); elsewhere the figures lack them.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from scripts.loopback_mesh import LoopbackMesh, MeshTrouble, free_network

TRAINER = Path(__file__).resolve().parents[1] / "examples" / "train_numpy.py"
GANGS = int(os.environ.get("HF_BENCH_GANGS", "20"))
SIZES = (2, 4)
GROUP_S = 30.0
BARE_PORT = 29500
ENGINE = Path(__file__).resolve().parents[1] / "docker_engine.sh"
IMAGE, CONTAINER_COMMAND = "heteroflow-test:busybox", "echo up"


def document(nodes: int, checkpoints: Path) -> dict[str, Any]:
    return {
        "name": f"bench-{nodes}",
        "task_type": "training",
        "training": {
            "framework": "ddp",
            "launcher": "script",
            "n_nodes": nodes,
            "per_node_gpu": 1,
            "checkpoint_path": str(checkpoints),
            "hyper_params": {"steps": 1},
        },
        "task": {"command": [sys.executable, str(TRAINER)], "gpu_required": 1},
    }


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def through_the_mesh(mesh: LoopbackMesh, nodes: int, checkpoints: Path) -> float:
    """Seconds from the POST to the last rank's first line."""
    api = mesh.api(2)
    begun = time.time()
    group = api.call("POST", "/task-groups", document(nodes, checkpoints))["group_id"]
    deadline = time.monotonic() + GROUP_S
    while (shown := api.call("GET", f"/task-groups/{group}"))["status"] != "completed":
        if shown["status"] in ("failed", "stopped") or time.monotonic() > deadline:
            raise MeshTrouble(f"a gang of {nodes} is {shown['status']}: {shown['failure'] or shown['pending_reason']}")
        time.sleep(0.2)
    return (
        max(first_line_at(api.lines(f"/task-groups/{group}/logs?rank={rank}&offset=0")) for rank in range(nodes))
        - begun
    )


def first_line_at(lines: list[dict[str, Any]]) -> float:
    return datetime.fromisoformat(lines[0]["at"]).timestamp()


def bare(nodes: int, checkpoints: Path) -> float:
    """Seconds from the first start to the last first line, with nothing between the trainer and this process."""
    address = free_network() + "1"
    begun = time.time()
    heard: list[float] = []
    started = []
    for node in range(nodes):
        environment = os.environ | {
            "MASTER_ADDR": address,
            "MASTER_PORT": str(BARE_PORT),
            "NNODES": str(nodes),
            "NODE_RANK": str(node),
            "HETEROFLOW_CHECKPOINT_PATH": str(checkpoints),
            "HETEROFLOW_HP_STEPS": "1",
        }
        process = subprocess.Popen(
            [sys.executable, str(TRAINER)], env=environment, stdout=subprocess.PIPE, start_new_session=True
        )
        listener = threading.Thread(target=_listen, args=(process, heard.append))
        listener.start()
        started.append((process, listener))
    for process, listener in started:
        listener.join()
        if process.wait():
            raise MeshTrouble(f"the trainer started by hand ended with {process.returncode}")
    return max(heard) - begun


def _listen(process: subprocess.Popen[bytes], note: Callable[[float], None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        note(time.time())
        process.stdout.read()


def engine_socket() -> str | None:
    """Of the engine that tests use, started where it does not run."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("dockerd", "docker", "busybox")):
        return None
    done = subprocess.run([str(ENGINE), "start"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise MeshTrouble(f"the engine for tests did not start: {done.stderr}")
    return done.stdout.strip()


def containers_through_the_mesh(mesh: LoopbackMesh, nodes: int, checkpoints: Path) -> float:
    """Seconds from the POST until a follower at a third node has a line of every rank."""
    api = mesh.api(2)
    wanted = document(nodes, checkpoints)
    wanted["task"] = {"command": CONTAINER_COMMAND, "image": IMAGE, "gpu_required": 1}
    begun = time.time()
    group = api.call("POST", "/task-groups", wanted)["group_id"]
    request = urllib.request.Request(
        f"http://{mesh.address(3)}/api/v1/task-groups/{group}/logs?follow=true",
        headers={"Authorization": f"Bearer {api.token}"},
    )
    heard: dict[int, float] = {}
    with urllib.request.urlopen(request, timeout=GROUP_S) as lines:
        for item in map(json.loads, lines):
            if "text" in item:
                heard.setdefault(item["rank"], time.time())
            if item.get("end") and (item["status"] != "completed" or len(heard) < nodes):
                raise MeshTrouble(f"a gang of {nodes} containers is {item['status']} with lines of {sorted(heard)}")
    return max(heard.values()) - begun


def bare_containers(socket: str, nodes: int) -> float:
    """Seconds from the first start to the last first line, with nothing but the engine's own client."""
    begun = time.time()
    heard: list[float] = []
    run = ["docker", "--host", f"unix://{socket}", "run", "--rm", "--network", "host"]
    command = [*run, IMAGE, "/bin/sh", "-c", CONTAINER_COMMAND]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(nodes)]
    listeners = [threading.Thread(target=_listen, args=(process, heard.append)) for process in started]
    for listener in listeners:
        listener.start()
    for process, listener in zip(started, listeners, strict=True):
        listener.join()
        if process.wait():
            raise MeshTrouble(f"docker run ended with {process.returncode}")
    return max(heard) - begun


def compared(name: str, ours: Callable[[], float], theirs: Callable[[], float]) -> dict[str, float]:
    """Figures in ms over GANGS pairs, one of each in turn."""
    pairs = [(ours(), theirs()) for _ in range(GANGS)]
    figures = {}
    for share, part in ((0.5, "p50"), (0.95, "p95")):
        mine = percentile([pair[0] for pair in pairs], share) * 1000
        other = percentile([pair[1] for pair in pairs], share) * 1000
        figures[f"mesh_{name}_{part}_ms"] = mine
        figures[f"bare_{name}_{part}_ms"] = other
        figures[f"added_{name}_{part}_ms"] = mine - other
    return figures


def processes(directory: Path) -> dict[str, float]:
    figures: dict[str, float] = {}
    mesh = LoopbackMesh(directory, nodes=4)
    gangs = itertools.count()

    def meshed(nodes: int) -> float:
        return through_the_mesh(mesh, nodes, directory / f"m{next(gangs)}")

    def alone(nodes: int) -> float:
        return bare(nodes, directory / f"b{next(gangs)}")

    try:
        mesh.start()
        for nodes in SIZES:
            through_the_mesh(mesh, nodes, directory / "warm")
            figures |= compared(
                f"{nodes}_nodes",
                partial(meshed, nodes),
                partial(alone, nodes),
            )
    finally:
        mesh.stop()
    return figures


def containers(directory: Path, socket: str) -> dict[str, float]:
    nodes = SIZES[0]
    gangs = itertools.count()

    def meshed(nodes: int) -> float:
        return through_the_mesh(mesh, nodes, directory / f"m{next(gangs)}")

    def alone(nodes: int) -> float:
        return bare(nodes, directory / f"b{next(gangs)}")

    mesh = LoopbackMesh(directory, nodes=3, runtime=("--runtime", "docker", "--docker-socket", socket))
    try:
        mesh.start()
        containers_through_the_mesh(mesh, nodes, directory / "warm")
        bare_containers(socket, nodes)
        return compared(
            f"docker_{nodes}_nodes",
            lambda: containers_through_the_mesh(mesh, nodes, directory / f"c{next(gangs)}"),
            lambda: bare_containers(socket, nodes),
        )
    finally:
        mesh.stop()
        # Those that an agent had no time to remove are nobody's any more.
        cluster = json.loads((mesh.data_dir(1) / "node.json").read_text())["cluster_id"]
        docker = ["docker", "--host", f"unix://{socket}"]
        listing = [*docker, "ps", "--all", "--quiet", "--filter", f"label=io.heteroflow.cluster={cluster}"]
        if left := subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split():
            subprocess.run([*docker, "rm", "--force", *left], check=True, stdout=subprocess.DEVNULL)


def main() -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="heteroflow-bench-") as place:
        figures = processes(_made(Path(place, "processes")))
        socket = engine_socket()
        if socket is not None:
            figures |= containers(_made(Path(place, "containers")), socket)
    parts = [(nodes, part) for nodes in SIZES for part in ("p50", "p95")]
    ratios = {f"{nodes}_nodes_{part}_of_1_s": figures[f"mesh_{nodes}_nodes_{part}_ms"] / 1000 for nodes, part in parts}
    ratios["added_2_nodes_p95_of_300_ms"] = figures["added_2_nodes_p95_ms"] / 300
    budgets = {}
    if socket is not None:
        for part in ("p50", "p95"):
            mine, other = figures[f"mesh_docker_2_nodes_{part}_ms"], figures[f"bare_docker_2_nodes_{part}_ms"]
            ratios[f"docker_2_nodes_{part}_of_docker_run"] = mine / other
        ratios["docker_2_nodes_p95_of_3_s"] = figures["mesh_docker_2_nodes_p95_ms"] / 3000
        budgets["mesh_docker_2_nodes_p95_ms"] = "<= 3000"
    return {"figures": figures, "ratios": ratios, "budgets": budgets}


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
