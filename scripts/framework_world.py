"""One real run of a framework: a mesh of two nodes, a job that is stopped in mid-run, and the same job again."""

import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.loopback_mesh import LoopbackMesh

NODES = 2
_POLL_S = 0.2
_STARTED = re.compile(r"rank (\d+) of (\d+) started")
_STEP = re.compile(r"rank (\d+) of (\d+) step (\d+) loss (\S+)")
_RESUMES = re.compile(r"rank (\d+) of (\d+) resumes from (\S+): step (\d+), loss (\S+)")


class NotAsPromised(Exception):
    """Is raised when the run shows something else than it should; the text says what, with the log."""


@dataclass(frozen=True, slots=True)
class Job:
    """command: of every node, with the programs of its environment first on its PATH; env: VENV stands for that."""

    framework: str
    command: str
    cards: int = 1
    launcher: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    hyper_params: dict[str, str] = field(default_factory=dict)
    # Whether a stop leaves the workers time to save.
    saves: bool = True
    nodes: int = NODES

    def document(self, name: str, command: str, directory: Path) -> dict[str, Any]:
        training: dict[str, Any] = {
            "framework": self.framework,
            "n_nodes": self.nodes,
            "per_node_gpu": self.cards,
            "checkpoint_path": str(directory / "checkpoints" / name),
            "hyper_params": {"steps": "100000", "step_delay_ms": "50", **self.hyper_params},
        }
        if self.launcher is not None:
            training["launcher"] = self.launcher
        # The machine's cores are few: nobody may spin.
        task = {"command": command, "gpu_required": self.cards, "env": {"OMP_NUM_THREADS": "1", **self.env}}
        return {"name": f"real {name}", "task_type": "training", "training": training, "task": task}


@dataclass(slots=True)
class Seen:
    """seconds: from submit to the first step, and from resubmit to the first step after the checkpoint."""

    ranks: list[int]
    world: int
    stopped_at: int
    loss: str
    resumed_loss: str
    went_on_to: int
    seconds: tuple[float, float]


class World:
    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s
        self.directory = Path(tempfile.mkdtemp(prefix="hf-framework-"))
        (self.directory / "checkpoints").mkdir()
        self.mesh = LoopbackMesh(self.directory, nodes=NODES, voters=1)

    def __enter__(self) -> "World":
        self.mesh.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.mesh.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def train(self, name: str, job: Job, command: str) -> Seen:
        """Raises NotAsPromised."""
        world = job.nodes * job.cards
        begun = time.monotonic()
        group = self._post("/task-groups", job.document(name, command, self.directory))
        self._matching(group, _STEP, lambda found: int(found[3]) >= 1)
        first_s = time.monotonic() - begun
        self._matching(group, _STEP, lambda found: int(found[3]) >= 20)
        # A launcher that repeats its workers' output may be a second behind.
        for rank in range(world):
            self._matching(group, _STARTED, lambda found, rank=rank: int(found[1]) == rank)
        started = [match for line in self.lines(group) if (match := _STARTED.search(line))]
        ranks = sorted(int(match[1]) for match in started)
        if ranks != list(range(world)) or {int(match[2]) for match in started} != {world}:
            raise NotAsPromised(f"not one world of {world}: ranks {ranks}\n{self._log(group)}")
        self._stop(group)
        if not job.saves:
            return Seen(ranks, world, 0, "", "", 0, (first_s, 0.0))
        lines = [*self.lines(group), *self._worker_lines(name)]
        last = max((match for line in lines if (match := _STEP.search(line))), key=lambda found: int(found[3]))
        begun = time.monotonic()
        again = self._post(f"/task-groups/{group}/resubmit", None)
        resumed = self._matching(again, _RESUMES, lambda found: True)
        if (resumed[4], resumed[5]) != (last[3], last[4]):
            raise NotAsPromised(
                f"stopped at step {last[3]} with loss {last[4]}, went on from {resumed[4]} with {resumed[5]}\n"
                + self._log(again)
            )
        later = self._matching(again, _STEP, lambda found: int(found[3]) > int(resumed[4]))
        again_s = time.monotonic() - begun
        self._stop(again)
        return Seen(ranks, world, int(last[3]), last[4], resumed[5], int(later[3]), (first_s, again_s))

    def lines(self, group: str) -> list[str]:
        return [line["text"] for line in self.mesh.api().lines(f"/task-groups/{group}/logs") if "text" in line]

    def _worker_lines(self, name: str) -> list[str]:
        """Of Paddle's workers: when it is stopped its launcher does not repeat their last words."""
        logs = (self.directory / "checkpoints" / name).glob("paddle_logs/*/*/workerlog.*")
        return [line for log in sorted(logs) for line in log.read_text(errors="replace").splitlines()]

    def _post(self, path: str, body: Any) -> str:
        return str(self.mesh.api().call("POST", path, body)["group_id"])

    def _stop(self, group: str) -> None:
        self.mesh.api().call("POST", f"/task-groups/{group}/stop")
        deadline = time.monotonic() + self.wait_s
        while (status := self._status(group)) != "stopped":
            if time.monotonic() > deadline or status in ("failed", "completed"):
                raise NotAsPromised(f"{status} instead of stopped\n{self._log(group)}")
            time.sleep(_POLL_S)

    def _status(self, group: str) -> str:
        return str(self.mesh.api().call("GET", f"/task-groups/{group}")["status"])

    def _matching(self, group: str, pattern: re.Pattern[str], holds: Any) -> re.Match[str]:
        deadline = time.monotonic() + self.wait_s
        while True:
            status = self._status(group)
            for line in self.lines(group):
                if (found := pattern.search(line)) and holds(found):
                    return found
            if time.monotonic() > deadline or status in ("failed", "completed", "stopped"):
                raise NotAsPromised(f"{status}, and no line like {pattern.pattern}\n{self._log(group)}")
            time.sleep(_POLL_S)

    def _log(self, group: str) -> str:
        return "\n".join(self.lines(group)[-60:])
