"""Drills a to e: parts of a node die or freeze while a two-node group trains."""

import json
import os
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from schemas.limits import PROFILES
from scripts.drills.job import Job, check_steps
from scripts.drills.mesh import DrillFailed, DrillMesh, until
from scripts.loopback_mesh import MeshTrouble

T_LEASE_S = PROFILES["fast"].t_lease_ms / 1000
AGAIN_S = 5.0
AGAIN_LED_S = 6.0
WRITE_MAX_S = 6.0
BETRAY_S = 1.0  # many periods of the proof of life: an old attempt that lives has written in it, on a busy machine too
WATCHED_MIN = 4  # a submit and a stop of the write, the stop of the job, its end


@dataclass
class Figures:
    """Seconds by name; a drill adds to them and the report draws the percentiles."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.seconds.setdefault(name, []).append(value)


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def lead_from(mesh: DrillMesh, wanted: set[int]) -> int:
    """Moves the lead into `wanted` by killing voters, as often as it takes. Returns who leads."""
    for _ in range(20):
        leader = until("a leader", mesh.leader, 15.0)
        if leader in wanted:
            return int(leader)
        mesh.kill(leader, "voter")
        until("another leader", partial(_another_leads, mesh, leader), 15.0)
        until("the killed voter to be back", partial(mesh.pids, leader, "voter"), 15.0)
    raise DrillFailed(f"none of {sorted(wanted)} led after 20 elections")


def _another_leads(mesh: DrillMesh, gone: int) -> bool:
    return mesh.leader(gone) not in (None, gone)


def first_write(mesh: DrillMesh, avoid: int, name: str) -> float:
    """Seconds until a new write is acknowledged through a node other than `avoid`."""
    begun = time.monotonic()
    tiny = {
        "name": name,
        "task_type": "training",
        "training": {"framework": "ddp", "n_nodes": 1, "per_node_gpu": 64},
        "task": {"command": ["true"], "gpu_required": 64},
    }
    node = next(node for node in range(1, mesh.nodes + 1) if node != avoid)

    def wrote() -> str | None:
        try:
            return str(mesh.submit(node, tiny, f"write-{name}", timeout_s=2.0)["group_id"])
        except MeshTrouble:
            return None

    group_id = until("an acknowledged write", wrote, 30.0, every_s=0.02)
    took = time.monotonic() - begun
    mesh.api(node).call("POST", f"/task-groups/{group_id}/stop", {})
    return took


def watched(path: Path) -> list[int]:
    """The indexes a watch showed, which only rise, over the whole drill."""
    found: list[int] = []
    for line in path.read_text().splitlines():
        try:
            frame = json.loads(line)
        except ValueError:
            continue
        idx = frame.get("idx") if isinstance(frame, dict) else None
        if isinstance(idx, int):
            if found and idx <= found[-1]:
                raise DrillFailed(f"the watch went back from index {found[-1]} to {idx}")
            found.append(idx)
    if len(found) < WATCHED_MIN:
        raise DrillFailed(f"the watch showed {len(found)} frames; the write and the stop alone make {WATCHED_MIN}")
    return found


def check_watches(one: Path, other: Path) -> None:
    """Two watches through two nodes show the same indexes wherever both watched: neither has a gap."""
    first, second = watched(one), watched(other)
    low, high = max(first[0], second[0]), min(first[-1], second[-1])
    missing = {idx for idx in {*first} ^ {*second} if low <= idx <= high}
    if missing:
        raise DrillFailed(f"one of two watches did not show the indexes {sorted(missing)[:10]}")


def leader_dies(mesh: DrillMesh, round_: int, figures: Figures, *, hosts_rank: bool) -> None:
    """a, b: kill -9 of the leader's agent and voter; the guard brings them back within the lease."""
    kind = "b" if hosts_rank else "a"
    job = Job(mesh, f"{kind}{round_}")
    job.await_running()
    ranks = set(mesh.places(job.id))
    leader = lead_from(mesh, ranks if hosts_rank else set(range(1, mesh.nodes + 1)) - ranks)
    other, third = (node for node in range(1, mesh.nodes + 1) if node != leader)
    logs, watch = mesh.directory / f"{job.name}.logs", mesh.directory / f"{job.name}.watch"
    second_watch = mesh.directory / f"{job.name}.watch2"
    readers = [
        mesh.follow(other, "logs", job.id, "-f", "-o", "json", into=logs),
        mesh.follow(other, "watch", "-o", "json", into=watch),
        mesh.follow(third, "watch", "-o", "json", into=second_watch),
    ]
    try:
        until("the log follower to speak", lambda: logs.stat().st_size, 10.0)
        mesh.kill(leader, "agent", "voter")
        took = first_write(mesh, leader, f"after-{job.name}")
        figures.add(f"{kind}: kill to first acknowledged write", took)
        if took > WRITE_MAX_S:
            raise DrillFailed(f"the first write took {took:.1f} s; at most {WRITE_MAX_S:g} s are promised")
        until("the killed agent to be back", lambda: mesh.pids(leader, "agent"), 15.0)
        before = len(job.steps())
        until("training to go on", lambda: len(job.steps()) > before + 1, 15.0)
        shown = mesh.group(job.id, leader)  # the killed one may not listen yet
        if (shown["status"], shown["attempt"]) != ("running", 1):
            raise DrillFailed(f"the group is {shown['status']} in attempt {shown['attempt']}, not running in attempt 1")
        until("the killed node to answer again", lambda: mesh.api(leader).call("GET", "/nodes"), 20.0)
        job.stop()
        until("the log follower to end", lambda: readers[0].poll() is not None, 20.0)
    finally:
        for reader in readers:
            reader.terminate()
            reader.wait(10)
    if check_steps(logs.read_text().splitlines(), "logs -f") < 20:
        raise DrillFailed("logs -f showed fewer than 20 lines")
    check_watches(watch, second_watch)
    _check_whole_log(mesh, job, leader)


def _check_whole_log(mesh: DrillMesh, job: Job, node: int) -> None:
    into = mesh.directory / f"{job.name}.whole"
    done = mesh.follow(node, "logs", job.id, "--tail", "100000", "-o", "json", into=into).wait(30)
    if done != 0 or check_steps(into.read_text().splitlines(), "the whole log") < 20:
        raise DrillFailed(f"the whole log cannot be read back (exit {done}): {into.with_suffix('.err').read_text()}")


def node_dies(
    mesh: DrillMesh, round_: int, figures: Figures, *, kind: str, keep_writing: bool, leads: bool = False
) -> None:
    """c: all of a node; d: its agent, and no guard restarts it; e: its agent is frozen beyond the lease, then wakes."""
    name = f"{kind}{round_}{'-keep' if keep_writing else ''}{'-led' if leads else ''}"
    job = Job(mesh, name, *(["--keep-writing"] if keep_writing else []))
    job.await_running()
    ranks = set(mesh.places(job.id))
    leader = lead_from(mesh, ranks if leads else set(range(1, mesh.nodes + 1)))
    victim = leader if leads else min(ranks - {leader})
    begun_ns = boottime_ns()
    frozen: list[int] = []
    if kind == "c":
        mesh.kill(victim, "guard", "agent", "voter", "shim", "task")
        mesh.kill(victim, "guard", "agent", "voter", "shim", "task")
    elif kind == "d":
        mesh.kill(victim, "agent")
    else:
        frozen = mesh.pids(victim, "agent")
        mesh.kill(victim, "agent", number=signal.SIGSTOP)
    limit_s = T_LEASE_S + (AGAIN_LED_S if leads else AGAIN_S)
    again_ns = until("the group to run again elsewhere", lambda: job.restarted_at_ns(2), limit_s + 15.0)
    took = (again_ns - begun_ns) / 1e9
    figures.add(f"{kind}: fault to running elsewhere{' (node led)' if leads else ''}", took)
    time.sleep(BETRAY_S)  # an old attempt that still lives writes now; a frozen agent stays frozen meanwhile
    if frozen:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        time.sleep(2.0)  # and what it does when it wakes must not harm the new attempt
    until("the new attempt to run", lambda: mesh.group(job.id, victim)["status"] == "running", 15.0)
    shown = mesh.group(job.id, victim)
    job.check_no_overlap()
    if took > limit_s:
        raise DrillFailed(f"running again after {took:.1f} s; at most {limit_s:g} s are promised")
    if not shown["resume"]:
        raise DrillFailed("the new attempt began from zero although there were checkpoints")
    if f"node-{victim}" in shown["nodes"]:
        raise DrillFailed(f"the new attempt was placed on the lost node-{victim}")
    job.stop(victim)
