"""Containers under a whole mesh: agents and the engine are killed, and nothing of the job notices."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from schemas.limits import PROFILES
from scripts.drills.mesh import DrillFailed, DrillMesh, until
from scripts.loopback_mesh import processes_of
from tests.docker.engine import IMAGE, docker, engine_down, engine_socket, engine_up, remove_containers

WAIT_S = 90.0
# Lines in bursts until it is told to stop; then it saves, and the shell around it goes on.
TALK = (
    "cd /checkpoint && sh -c '"
    'trap "echo saved | tee saved-$NODE_RANK; exit 0" TERM; n=0; '
    "while :; do e=$((n+25)); while [ $n -lt $e ]; do echo line $n; n=$((n+1)); done; sleep 0.05; done'; "
    "echo the shell went on"
)

# 200 MB in lines of 8 KB, faster than anybody reads who is frozen meanwhile.
FLOOD_LINES = 25_000
FLOOD = (
    "cd /checkpoint; pad=$(printf %08000d 0); echo line 0; while [ ! -e go-on ]; do sleep 0.1; done; n=1; "
    f"while [ $n -le {FLOOD_LINES} ]; do echo line $n $pad; n=$((n+1)); done; echo pause; "
    "while :; do sleep 0.1; done"
)

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(480)]


class World:
    """Three nodes on one engine, so that names and labels alone keep their containers apart."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hf-mesh-docker-"))
        flags = ("--runtime", "docker", "--docker-socket", engine_socket())
        # Agents killed one after the other on a busy machine are away for long, and that is not the point here.
        self.mesh = DrillMesh(self.root, profile="wan", runtime=flags)
        (self.root / "checkpoints").mkdir()

    def submit(self, command: str, nodes: int) -> str:
        document = {
            "name": "talk",
            "task_type": "training",
            "training": {
                "framework": "ddp",
                "n_nodes": nodes,
                "per_node_gpu": 2,
                "checkpoint_path": str(self.root / "checkpoints"),
            },
            "task": {"command": command, "image": IMAGE, "gpu_required": 2, "stop_grace_s": 30},
        }
        return str(self.mesh.api().call("POST", "/task-groups", document)["group_id"])

    def until_status(self, group: str, status: str) -> dict[str, Any]:
        try:
            until(f"{group} to be {status}", lambda: self.mesh.group(group)["status"] == status, WAIT_S)
        except DrillFailed as late:
            raise AssertionError(f"{late}: {self.mesh.group(group)}") from late
        return self.mesh.group(group)

    @property
    def cluster(self) -> str:
        return str(json.loads((self.mesh.data_dir(1) / "node.json").read_text())["cluster_id"])

    def containers(self) -> dict[str, tuple[str, str, str]]:
        """Name -> (id, node, state) of every container of this mesh."""
        layout = '{{.Names}} {{.ID}} {{.Label "io.heteroflow.node"}} {{.State}}'
        label = f"label=io.heteroflow.cluster={self.cluster}"
        lines = docker("ps", "--all", "--no-trunc", "--filter", label, "--format", layout).splitlines()
        return {name: (made, node, state) for name, made, node, state in (line.split() for line in lines)}

    def first_pids(self) -> dict[str, str]:
        return {name: docker("inspect", "--format", "{{.State.Pid}}", name) for name in self.containers()}

    def mounts(self) -> list[str]:
        """What this mesh or its containers have mounted on the host."""
        marks = (str(self.root), *(made for made, _, _ in self.containers().values()))
        return [line for line in Path("/proc/mounts").read_text().splitlines() if any(mark in line for mark in marks)]

    def whole_log(self, node: int, group: str) -> list[dict[str, Any]]:
        into = self.root / f"whole-{node}"
        reader = self.mesh.follow(node, "logs", group, "-o", "json", into=into)
        assert reader.wait(60) == 0, into.with_suffix(".err").read_text()
        return items(into)

    def check_runs_on(self, group: str, attempt: int) -> None:
        shown = self.mesh.group(group)
        found = (shown["status"], shown["attempt"], [task["status"] for task in shown["tasks"]])
        if found != ("running", attempt, ["running", "running"]):
            told = self.mesh.api().call("GET", f"/task-groups/{group}/fault-events")["events"]
            pytest.fail("\n".join([str(found), *(f"{one['at']} {one['text']} {one['data']}" for one in told)]))

    def tail(self, node: int, group: str) -> str:
        lines = self.mesh.api(node).lines(f"/task-groups/{group}/logs?tail=1")
        return next((str(line["text"]) for line in lines if "text" in line), "")

    def kill_agents(self, *nodes: int, health: str = "ok") -> None:
        killed = {pid for node in nodes for pid in self.mesh.pids(node, "agent")}
        assert len(killed) == len(nodes)
        for node in nodes:
            self.mesh.kill(node, "agent")

        def back() -> bool:
            now = {node: set(self.mesh.pids(node, "agent")) - killed for node in nodes}
            return all(now.values()) and all(self.health(node) == health and self.renewed(node) for node in nodes)

        until(f"the agents of {nodes} to be back", back, WAIT_S)

    def health(self, node: int) -> str:
        return str(self.agent(node)["status"])

    def renewed(self, node: int) -> bool:
        """Whether the lease outlives the next kill; it stands, half used up, before the first renewal."""
        return bool(self.agent(node)["lease"]["left_ms"] > 2 / 3 * PROFILES["wan"].t_stop_ms)

    def agent(self, node: int) -> dict[str, Any]:
        return dict(self.mesh.api(node).call("GET", "/mesh", timeout_s=3.0)["agent"])

    def close(self) -> None:
        cluster = self.cluster if (self.mesh.data_dir(1) / "node.json").exists() else "none"
        self.mesh.stop()
        remove_containers(f"io.heteroflow.cluster={cluster}")
        shutil.rmtree(self.root, ignore_errors=True)


def items(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_log(shown: list[dict[str, Any]], what: str) -> dict[int, int]:
    """Every line once and in order, and what a stop says at the end. Returns how many numbered lines each rank has."""
    odd = [item for item in shown if "text" not in item and not {"end", "moved"} & item.keys()]
    assert not odd, f"{what}: {odd[:3]}"
    counts = {}
    for rank in (0, 1):
        texts = [str(item["text"]) for item in shown if item.get("rank") == rank and "text" in item]
        numbers = [int(found[1]) for text in texts if (found := re.fullmatch(r"line (\d+)", text))]
        assert numbers == list(range(len(numbers))), f"{what}, rank {rank}: {_breaks(numbers)}"
        # The trapping shell's own child hears the stop too, and the shell says so.
        rest = [text for text in texts[len(numbers) :] if text != "Terminated"]
        assert rest == ["saved", "the shell went on"], f"{what}, rank {rank}"
        counts[rank] = len(numbers)
    return counts


def _breaks(numbers: list[int]) -> list[tuple[int, int]]:
    return [(one, two) for one, two in pairwise(numbers) if two != one + 1][:5]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    try:
        made.mesh.start()
        yield made
    finally:
        made.close()


def test_containers_of_a_mesh_outlive_killed_agents_and_a_killed_engine(world: World) -> None:
    group = world.submit(TALK, 2)
    shown = world.until_status(group, "running")
    hosts = [int(name.removeprefix("node-")) for name in shown["nodes"]]
    (spectator,) = {1, 2, 3} - set(hosts)
    before, pids = world.containers(), world.first_pids()
    assert {name: (node, state) for name, (_, node, state) in before.items()} == {
        f"hf-{group}-{shown['attempt']}-{rank}": (f"node-{hosts[rank]}", "running") for rank in (0, 1)
    }
    # What an agent that comes up sweeps away is its own alone: not another node's, not another mesh's.
    others = [{"cluster": world.cluster, "node": "node-9"}, {"cluster": "another", "node": f"node-{hosts[0]}"}]
    rank = {"group": "tg-gone", "attempt": "1", "rank": "0"}
    foreign = [docker("create", *_labels(owner | rank), IMAGE, "true") for owner in others]
    followed = world.root / "followed"
    words = ("logs", group, "-f", "-o", "json", "--timeout", f"{WAIT_S:g}")
    follower = world.mesh.follow(spectator, *words, into=followed)
    chance = random.Random(11)
    try:
        for killed in ([hosts[0]], [spectator], [hosts[1]], [1, 2, 3]):
            world.kill_agents(*killed)
            world.check_runs_on(group, shown["attempt"])
            time.sleep(chance.uniform(0.0, 0.5))
        engine_down()
        try:
            world.kill_agents(hosts[0], health="degraded")
        finally:
            engine_up()
        until("the mesh to be well again", lambda: {world.health(node) for node in (1, 2, 3)} == {"ok"}, WAIT_S)
        world.check_runs_on(group, shown["attempt"])
        assert {name: made for name, made in world.containers().items() if name in before} == before
        assert {name: pid for name, pid in world.first_pids().items() if name in before} == pids
        assert docker("inspect", "--format", "{{.Id}}", *foreign).split() == foreign
        world.mesh.api(spectator).call("POST", f"/task-groups/{group}/stop")
        world.until_status(group, "stopped")
        assert sorted(path.name for path in (world.root / "checkpoints").glob("saved-*")) == ["saved-0", "saved-1"]
        assert follower.wait(60) == 0, followed.with_suffix(".err").read_text()
    finally:
        follower.kill()
        follower.wait()
        docker("rm", "--force", *foreign)
    counts = check_log(items(followed), "followed")
    for node in (1, 2, 3):
        assert check_log(world.whole_log(node, group), f"read back through node-{node}") == counts
    assert min(counts.values()) > 1000

    until("no container left", lambda: not world.containers(), WAIT_S)
    assert world.mounts() == []
    assert [pid for node in (1, 2, 3) for pid in world.mesh.pids(node, "shim", "task")] == []
    assert [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()] == []
    world.mesh.stop()
    assert processes_of(world.root) == []


def test_output_beyond_four_files_of_32_mb_is_counted_shown_and_an_event(world: World) -> None:
    group = world.submit(FLOOD, 1)
    shown = world.until_status(group, "running")
    host = int(shown["nodes"][0].removeprefix("node-"))
    other = host % 3 + 1
    until("the first line", lambda: world.whole_log(other, group), WAIT_S)
    name = f"hf-{group}-{shown['attempt']}-0"
    with contextlib.ExitStack() as thawed:
        for pid in world.mesh.pids(host, "shim"):
            os.kill(pid, signal.SIGSTOP)
            thawed.callback(os.kill, pid, signal.SIGCONT)
        (world.root / "checkpoints" / "go-on").touch()
        until("all of it written", lambda: docker("logs", "--tail", "1", name) == "pause", WAIT_S)

    def event() -> Any:
        told = world.mesh.api(other).call("GET", f"/task-groups/{group}/fault-events")["events"]
        return next((one for one in told if one["kind"] == "log_lost"), None)

    told = until("the loss to be an event while the task runs", event, WAIT_S)
    assert world.mesh.group(group)["status"] == "running"
    until("the log to be read to its end", lambda: world.tail(other, group) == "pause", WAIT_S)
    texts = [str(item["text"]) for item in world.whole_log(other, group) if "text" in item]
    (gap,) = (at for at, text in enumerate(texts) if " lost to rotation between " in text)
    numbers = [int(text.split()[1]) for text in texts if text.startswith("line ")]
    first, last = int(texts[gap - 1].split()[1]), int(texts[gap + 1].split()[1])
    assert numbers == [*range(first + 1), *range(last, FLOOD_LINES + 1)]
    lost = int(re.match(r"at least (\d+) bytes lost to rotation", texts[gap])[1])  # type: ignore[index]  # no match fails the test too
    assert (told["rank"], told["data"]["bytes"]) == (0, lost)
    # The files that are gone were full to within one record each.
    record = len(texts[gap + 1]) + len('{"log":"\\n","stream":"stdout","time":"2026-11-29T15:48:00.123456789Z"}\n')
    assert lost % 32_000_000 == 0
    assert lost <= (last - first - 1) * record <= 1.01 * lost


def _labels(labels: dict[str, str]) -> list[str]:
    return [word for name, value in labels.items() for word in ("--label", f"io.heteroflow.{name}={value}")]
