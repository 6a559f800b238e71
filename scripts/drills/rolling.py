"""Drill h: every agent and voter is stopped in order and started again, one node after the other, under a load of
submissions and a gang that trains."""

import random
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.drills.job import ENDED, Job
from scripts.drills.losses import Figures
from scripts.drills.mesh import DrillFailed, DrillMesh, until
from scripts.loopback_mesh import MeshTrouble

WRITERS = 4
WRITE_TRIES = 100
PAUSE_S = 0.3
BACK_S = 60.0


@dataclass
class Load:
    """Submits small groups through any node until it is ended; each third one is stopped at once. acknowledged: name
    -> id; stopped: ids whose stop was acknowledged."""

    mesh: DrillMesh
    name: str
    acknowledged: dict[str, str] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    slowest_s: float = 0.0
    _last: str = ""
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _wrong: list[str] = field(default_factory=list)

    def __enter__(self) -> "Load":
        for writer in range(WRITERS):
            thread = threading.Thread(target=self._write, args=(writer,))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        if self._wrong:
            raise DrillFailed(self._wrong[0])

    def _write(self, writer: int) -> None:
        rng = random.Random(writer)
        number = 0
        while not self._over.is_set():
            number += 1
            name = f"{self.name}-{writer}-{number}"
            begun = time.monotonic()
            group_id = self._insist(lambda node, name=name: self._submit(node, name), rng)
            if group_id is None:
                self._wrong.append(f"the submission of {name} was never acknowledged: {self._last}")
                return
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
            self.acknowledged[name] = group_id
            if number % 3 == 0 and self._insist(lambda node, group_id=group_id: self._stop(node, group_id), rng):
                self.stopped.add(group_id)
            self._over.wait(PAUSE_S)

    def _insist(self, ask: Any, rng: random.Random) -> str | None:
        """The first answer, whatever node gives it."""
        for _ in range(WRITE_TRIES):
            try:
                return str(ask(rng.randint(1, self.mesh.nodes)))
            except MeshTrouble as trouble:
                self._last = str(trouble)
                time.sleep(PAUSE_S)
        return None

    def _submit(self, node: int, name: str) -> str:
        return str(self.mesh.submit(node, small(name), f"key-{name}", timeout_s=5.0)["group_id"])

    def _stop(self, node: int, group_id: str) -> str:
        try:
            self.mesh.api(node).call("POST", f"/task-groups/{group_id}/stop", {}, timeout_s=5.0)
        except MeshTrouble as trouble:
            if "group_ended" not in str(trouble):
                raise
        return group_id


def small(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "task_type": "training",
        "training": {"framework": "ddp", "n_nodes": 1, "per_node_gpu": 1},
        "task": {"command": ["true"], "gpu_required": 1},
    }


def rolling_restart(mesh: DrillMesh, round_: int, figures: Figures, *, drained: bool) -> None:
    """h: drained: each node is emptied first, and the gang moves on with its checkpoint."""
    name = f"h{round_}{'-drained' if drained else ''}"
    job = Job(mesh, name)
    job.await_running()
    with Load(mesh, f"load-{name}") as load:
        for node in range(1, mesh.nodes + 1):
            if drained:
                _drain(mesh, node)
            begun = time.monotonic()
            _restart(mesh, node)
            figures.add("h: a node stopped until it serves again", time.monotonic() - begun)
            if drained:
                mesh.api(node).call("POST", f"/nodes/node-{node}/uncordon", {})
            until("the gang to run", lambda: mesh.group(job.id)["status"] == "running", 60.0)
    load.check()
    figures.add("h: slowest acknowledged submission", load.slowest_s)
    groups = until("every small group to end", lambda: _all_ended(mesh, f"load-{name}-"), 60.0)
    check_acknowledged(load.acknowledged, load.stopped, groups)
    _check_job(mesh, job, drained)


def _drain(mesh: DrillMesh, node: int) -> None:
    mesh.api(node).call("POST", f"/nodes/node-{node}/drain", {"mode": "move", "reason": "rolling restart"})

    def empty() -> bool:
        nodes = mesh.any_api().call("GET", "/nodes")["nodes"]
        return bool(next(shown for shown in nodes if shown["node_id"] == f"node-{node}")["drain"]["done_at"])

    until(f"node-{node} to be empty", empty, 40.0)


def _restart(mesh: DrillMesh, node: int) -> None:
    """As a service manager does it: SIGTERM to the guard, whose tasks run on, and the same command again."""
    guard = mesh.guards[node - 1]
    guard.terminate()
    try:
        guard.wait(30.0)
    except subprocess.TimeoutExpired:
        raise DrillFailed(f"the guard of node-{node} did not stop") from None
    mesh.start_node(node)
    # Only with it the next one may go: two of three voters down at once stop every write.
    until(f"node-{node} to serve again", lambda: _serves(mesh, node), BACK_S)


def _serves(mesh: DrillMesh, node: int) -> bool:
    """Whether it answers linearizable reads, its lease stands, and its voter is level with the leader."""
    shown = mesh.api(node).call("GET", "/mesh", timeout_s=3.0)
    mesh.api(node).call("GET", "/queue?limit=1", timeout_s=3.0)
    consensus, lease = shown["consensus"], shown["agent"]["lease"]
    return bool(consensus["leader"] and consensus["applied"] >= consensus["commit"] and lease and lease["granted"])


def _all_ended(mesh: DrillMesh, prefix: str) -> list[dict[str, Any]] | None:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = mesh.any_api().call("GET", f"/task-groups?name={prefix}&limit=500{cursor}")
        found += page["groups"]
        if page["cursor"] is None:
            return found if all(group["status"] in ENDED for group in found) else None
        cursor = f"&cursor={page['cursor']}"


def check_acknowledged(
    acknowledged: Mapping[str, str], stopped: Iterable[str], groups: Iterable[Mapping[str, Any]]
) -> None:
    """Each acknowledged submission is there once, under the id that was told, and nothing of it failed."""
    found: dict[str, list[str]] = {}
    told = set(stopped)
    for group in groups:
        found.setdefault(group["name"], []).append(group["group_id"])
        # A stop may come when it has completed already; without one nothing else is right.
        right = ("completed", "stopped") if group["group_id"] in told else ("completed",)
        if group["status"] not in right:
            raise DrillFailed(f"{group['name']} is {group['status']}: {group['failure']}")
    wrong = {name: found.get(name, []) for name, group_id in acknowledged.items() if found.get(name) != [group_id]}
    if wrong:
        raise DrillFailed(f"acknowledged and not there, or not once: {dict(list(wrong.items())[:3])}")
    if len(acknowledged) < WRITERS:
        raise DrillFailed(f"only {len(acknowledged)} submissions were made")


def _check_job(mesh: DrillMesh, job: Job, drained: bool) -> None:
    shown = mesh.group(job.id)
    job.check_no_overlap()
    if shown["restarts"]:
        raise DrillFailed(f"the gang was put back {shown['restarts']} times as if a node had been lost")
    if drained and not (shown["drains"] and shown["resume"]):
        raise DrillFailed(f"the gang was moved {shown['drains']} times and resumed from {shown['resume']}")
    if not drained and shown["attempt"] != 1:
        raise DrillFailed(f"the gang is in attempt {shown['attempt']}; a restarted agent is to adopt its ranks")
    if not job.still_alive(2.0):
        raise DrillFailed("the gang does not train any more")
    job.stop()
