"""What scripts/try submits: which trainer, the example as it stands, and the small set of jobs that a console shows."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent / "examples"
IMPORT_S = 60.0
VERSION = "import torch; print(torch.__version__)"


@dataclass(frozen=True)
class Trainer:
    """`torchrun` is None where the numpy example trains; `why` is one line for people."""

    torchrun: Path | None
    why: str

    @property
    def example(self) -> str:
        return "torch-two-node.yaml" if self.torchrun else "two-node.yaml"

    def command(self, *options: str) -> str:
        if self.torchrun is None:
            words = [sys.executable, str(EXAMPLES / "train_numpy.py")]
            return shlex.join([*words, *options])
        torchrun = f"{shlex.quote(str(self.torchrun))} --nproc_per_node=$LOCAL_WORLD_SIZE"
        return f"{torchrun} {shlex.join([str(EXAMPLES / 'train_torch.py'), *options])}"


class TrainerSearch:
    """Importing torch takes seconds, so it is tried while the mesh starts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = environment.get("HETEROFLOW_TORCH")
        self._bin = Path(named or sys.prefix) / "bin"
        self._where = f"HETEROFLOW_TORCH={named}" if named else sys.prefix
        python = self._bin / "python"
        self._probe: subprocess.Popen[str] | None = None
        # May be there and not ours to run: a link into another user's home, of which Path.is_file() would raise.
        if os.path.isfile(python) and os.access(python, os.X_OK):
            self._probe = subprocess.Popen(
                [python, "-c", VERSION],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def found(self) -> Trainer:
        if self._probe is None:
            return Trainer(None, f"numpy, because {self._where} has no bin/python that may be run")
        try:
            version = self._probe.communicate(timeout=IMPORT_S)[0].strip()
        except subprocess.TimeoutExpired:
            self.end()
            return Trainer(None, f"numpy, because torch in {self._where} took more than {IMPORT_S:g} s to import")
        torchrun = self._bin / "torchrun"
        if self._probe.returncode == 0 and torchrun.is_file():
            return Trainer(torchrun, f"torchrun, because torch {version} is in {self._where}")
        hint = "" if "=" in self._where else " (HETEROFLOW_TORCH=/path/to/venv names another place)"
        return Trainer(None, f"numpy, because torch cannot be imported in {self._where}{hint}")

    def end(self) -> None:
        if self._probe is not None and self._probe.poll() is None:
            self._probe.kill()
            self._probe.communicate()


def example(trainer: Trainer, checkpoints: Path) -> str:
    """The example as it stands, with this machine's paths in place of those it tells people to edit."""
    text = (EXAMPLES / trainer.example).read_text()
    replaced = {
        f"/tmp/heteroflow/{'torch' if trainer.torchrun else 'numpy'}-two-node": str(checkpoints),
        "/opt/heteroflow/examples": str(EXAMPLES),
    }
    if trainer.torchrun:
        replaced["command: torchrun"] = f"command: {shlex.quote(str(trainer.torchrun))}"
    else:
        replaced["[python3,"] = f"[{sys.executable},"
    for placeholder, here in replaced.items():
        if placeholder not in text:
            raise LookupError(f"{trainer.example} no longer says {placeholder}")
        text = text.replace(placeholder, here)
    return text


def demonstration(trainer: Trainer, directory: Path) -> list[dict[str, Any]]:
    """Jobs for three nodes of two cards: in a minute one has finished, one has failed, one trains, and one waits."""
    numpy = Trainer(None, "")
    kind = "torch" if trainer.torchrun else "numpy"
    rate = "0.0003" if trainer.torchrun else "0.0005"
    steps, broken = numpy.command("--step-delay", "10"), numpy.command("--step-delay", "10", "--fail-at", "80")
    training, waiting = trainer.command("--step-delay", "50"), numpy.command("--step-delay", "50")
    jobs = (
        ("first-steps", 1, 1, steps, "0.01", "150"),
        ("fails-at-80", 1, 1, broken, "0.01", "400"),
        (f"{kind}-two-node", 2, 2, training, rate, "4000"),
        ("three-node", 3, 2, waiting, "0.001", "2000"),
    )
    return [_document(directory, *job) for job in jobs]


def _document(
    directory: Path, name: str, nodes: int, cards: int, command: str, rate: str, steps: str
) -> dict[str, Any]:
    return {
        "name": name,
        "task_type": "training",
        "training": {
            "framework": "ddp",
            **({"launcher": "script"} if "train_numpy.py" in command else {}),
            "n_nodes": nodes,
            "per_node_gpu": cards,
            "checkpoint_path": str(directory / "checkpoints" / name),
            "hyper_params": {"learning_rate": rate, "steps": steps, "checkpoint_every": "100"},
        },
        "task": {"command": command, "gpu_required": cards, "stop_grace_s": 20},
    }
