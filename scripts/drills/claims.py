"""Drills f and g: a claim that fails, races for the last cards, and submissions whose answers are lost."""

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from mesh.core.sched.pool import free_port
from scripts.drills.job import ENDED, Job, document
from scripts.drills.losses import Figures
from scripts.drills.mesh import DrillFailed, DrillMesh, until
from scripts.loopback_mesh import MeshTrouble

LOST_ANSWERS = 200


def claim_fails(mesh: DrillMesh, round_: int, figures: Figures) -> None:
    """f: rank 0's port is taken by a stranger: both ranks roll back, the reason is told, a later attempt runs."""
    with ExitStack() as strangers:
        # The port follows from the group's id, so nothing is placed until the strangers are there.
        mesh.api().call("POST", "/mesh/pause-scheduling", {"reason": "drill f"})
        job = Job(mesh, f"f{round_}")
        port = free_port(set(), job.id, 1)
        # On the nodes' own addresses: another mesh of this machine may use the same port on its own.
        for node in range(1, mesh.nodes + 1):
            strangers.enter_context(socket.socket()).bind((f"{mesh.prefix}{node}", port))
        mesh.api().call("POST", "/mesh/resume-scheduling", {})
        rolled = until("a rollback", lambda: _event(mesh, job.id, "rolled_back"), 20.0)
        if "port" not in rolled["text"]:
            raise DrillFailed(f"the rollback does not name the port: {rolled['text']}")
    job.await_running(timeout_s=40.0)
    shown = mesh.group(job.id)
    if shown["attempt"] < 2:
        raise DrillFailed("the group runs in its first attempt although that was rolled back")
    started = [event for event in _events(mesh, job.id) if event["kind"] == "rank_started"]
    if any(event["attempt"] != shown["attempt"] for event in started):
        raise DrillFailed("a rank of a rolled-back attempt was started")
    job.stop()


def _events(mesh: DrillMesh, group_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mesh.api().call("GET", f"/task-groups/{group_id}/fault-events")["events"]
    return found


def _event(mesh: DrillMesh, group_id: str, kind: str) -> dict[str, Any] | None:
    return next((event for event in _events(mesh, group_id) if event["kind"] == kind), None)


def last_cards(mesh: DrillMesh, round_: int, figures: Figures) -> None:
    """g: two groups that each need every card, submitted at once: one runs, one waits and says for what."""
    answers: dict[int, str] = {}
    gate = threading.Barrier(2)

    def submit(node: int) -> None:
        name = f"g{round_}-{node}"
        wanted = document(mesh, name, nodes=mesh.nodes)
        gate.wait()
        answers[node] = str(mesh.submit(node, wanted, f"race-{name}")["group_id"])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(submit, (1, 2)))
    ids = list(answers.values())

    def statuses() -> list[str]:
        return sorted(str(mesh.group(group_id)["status"]) for group_id in ids)

    until("one of two to run", lambda: statuses() == ["pending", "running"], 20.0)
    waiting = next(shown for shown in map(mesh.group, ids) if shown["status"] == "pending")
    reason = until("a reason", lambda: mesh.group(waiting["group_id"])["pending_reason"], 5.0)
    if "nodes pass" not in reason["text"]:
        raise DrillFailed(f"the waiting group does not say what refused it: {reason}")
    for group_id in ids:
        mesh.api().call("POST", f"/task-groups/{group_id}/stop", {})
    until("both to stop", lambda: all(status in ENDED for status in statuses()), 30.0)


def lost_answers(mesh: DrillMesh, round_: int, figures: Figures) -> None:
    """g: 200 submissions at once; each drops its first answers and retries on other nodes. Each group exists once."""
    names = [f"lost-{round_}-{number}" for number in range(LOST_ANSWERS)]

    def submit(name: str) -> str:
        rng = random.Random(name)
        wanted = {
            "name": name,
            "task_type": "training",
            "training": {"framework": "ddp", "n_nodes": 1, "per_node_gpu": 64},
            "task": {"command": ["true"], "gpu_required": 64},
        }
        for _ in range(2):
            try:
                mesh.submit(rng.randint(1, mesh.nodes), wanted, f"key-{name}", timeout_s=rng.choice((0.002, 0.02, 0.1)))
            except MeshTrouble:
                continue
        for _ in range(60):
            try:
                return str(mesh.submit(rng.randint(1, mesh.nodes), wanted, f"key-{name}", timeout_s=10.0)["group_id"])
            except MeshTrouble:
                continue
        raise DrillFailed(f"{name} was never acknowledged")

    with ThreadPoolExecutor(32) as pool:
        told = dict(zip(names, pool.map(submit, names), strict=True))
    found: dict[str, list[str]] = {}
    cursor = ""
    while True:
        page = mesh.api().call("GET", f"/task-groups?name=lost-{round_}-&limit=100{cursor}")
        for group in page["groups"]:
            found.setdefault(group["name"], []).append(group["group_id"])
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    wrong = {name: ids for name, ids in found.items() if ids != [told.get(name)]}
    if wrong or len(found) != len(names):
        some = dict(list(wrong.items())[:3])
        raise DrillFailed(f"{len(found)} of {len(names)} exist; these not once or not as acknowledged: {some}")
    for group_id in told.values():
        mesh.api().call("POST", f"/task-groups/{group_id}/stop", {})
