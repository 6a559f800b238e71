"""The job under a drill: two nodes of the example trainer with proof of life, and the record of its log lines."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from scripts.drills.life import overlap, spans
from scripts.drills.mesh import DrillFailed, DrillMesh, until

TRAINER = Path(__file__).resolve().parent.parent / "examples" / "train_numpy.py"
TRACE = "life.trace"
LOGGED_EVERY = 10  # the trainer's default; it names the first and last step besides
ENDED = ("completed", "failed", "stopped")


def document(mesh: DrillMesh, name: str, *flags: str, nodes: int = 2, cards: int = 2) -> dict[str, Any]:
    command = [sys.executable, str(TRAINER), "--step-delay", "20", "--trace-file", TRACE, *flags]
    return {
        "name": name,
        "task_type": "training",
        "training": {
            "framework": "ddp",
            "launcher": "script",
            "n_nodes": nodes,
            "per_node_gpu": cards,
            "checkpoint_path": str(mesh.directory / "checkpoints" / name),
            "hyper_params": {"learning_rate": "0.05", "steps": "100000", "checkpoint_every": "20"},
        },
        "task": {"command": command, "gpu_required": cards, "stop_grace_s": 2},
    }


class Job:
    def __init__(self, mesh: DrillMesh, name: str, *flags: str) -> None:
        self.mesh, self.name = mesh, name
        self.checkpoints = mesh.directory / "checkpoints" / name
        answer = mesh.submit(1, document(mesh, name, *flags), f"drill-{name}")
        self.id = str(answer["group_id"])

    @property
    def trace(self) -> Path:
        return self.checkpoints / TRACE

    def steps(self) -> list[int]:
        return sorted(int(path.name.removeprefix("step-")) for path in self.checkpoints.glob("step-*"))

    def await_running(self, *avoid: int, timeout_s: float = 20.0) -> None:
        """Running on every rank, with a checkpoint to come back to."""
        until(f"{self.name} to run", lambda: self.mesh.group(self.id, *avoid)["status"] == "running", timeout_s)
        until(f"a checkpoint of {self.name}", self.steps, timeout_s)

    def restarted_at_ns(self, attempt: int) -> int | None:
        """CLOCK_BOOTTIME of the first proof of life of an attempt from `attempt` on."""
        return next((span.first_ns for span in spans(self.trace) if span.attempt >= attempt), None)

    def still_alive(self, seconds: float = 0.5) -> bool:
        last = max((span.last_ns for span in spans(self.trace)), default=0)
        try:
            until("proof of life", lambda: max(span.last_ns for span in spans(self.trace)) > last, seconds)
        except DrillFailed:
            return False
        return True

    def check_no_overlap(self) -> None:
        found = overlap(self.trace)
        if found:
            raise DrillFailed(found)

    def stop(self, *avoid: int) -> None:
        self.mesh.any_api(*avoid).call("POST", f"/task-groups/{self.id}/stop", {})
        until(f"{self.name} to stop", lambda: self.mesh.group(self.id, *avoid)["status"] in ENDED, 30.0)


def steps_by_rank(lines: list[str]) -> dict[tuple[int, int], list[int]]:
    """(attempt, rank) -> the steps its log lines name, in order. Input: `logs -o json` lines."""
    found: dict[tuple[int, int], list[int]] = {}
    for line in lines:
        try:
            item = json.loads(line)
            words = str(item["text"]).split()
            rank, step = int(words[words.index("rank") + 1]), int(words[words.index("step") + 1])
            words.index("loss")
        except (ValueError, KeyError, IndexError, TypeError):
            continue
        if step % LOGGED_EVERY == 0:
            found.setdefault((int(item["attempt"]), rank), []).append(step)
    return found


def check_steps(lines: list[str], what: str) -> int:
    """Every rank's steps rise by a constant stride: no line lost, none repeated. Returns how many were seen."""
    seen = 0
    for (attempt, rank), steps in steps_by_rank(lines).items():
        gaps = {later - earlier for earlier, later in pairwise(steps)}
        if len(gaps) > 1 or any(gap <= 0 for gap in gaps):
            raise DrillFailed(f"{what}: steps of rank {rank}, attempt {attempt} skip or repeat: gaps {sorted(gaps)}")
        seen += len(steps)
    return seen
