"""Real writers killed at any moment: what is picked can be loaded and is of its step; nothing finished is missed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docker.engine import torch_environment
from tests.unit.checkpoints.trees import probed
from tests.waiting import until

KILLS = int(os.environ.get("HF_CHECKPOINT_KILLS", "5"))
SEED = int(os.environ.get("HF_CHECKPOINT_SEED", "0")) or random.randrange(1, 10**6)
WRITER = Path(__file__).with_name("writer.py")


class Writer:
    """See writer.py."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def say(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def killed_at(self, kind: str, root: Path, saves: int, after_s: float) -> None:
        """One writer, killed `after_s` after it has finished `saves` saves and begun another."""
        before = len(said(root))
        pid = int(self.say(f"write {kind} {root}"))
        until("the writer to get on", lambda: len(said(root)) - before >= 2 * saves + 1, every_s=0.002)
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
        assert self.hear() == "gone"


@contextmanager
def writer(python: str, library: str) -> Iterator[Writer]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [python, str(WRITER), library],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        writing = Writer(process)
        assert writing.hear() == "ready"
        yield writing
        assert process.stdin is not None
        process.stdin.close()


def said(root: Path) -> list[str]:
    """What the writers of this root have begun and saved."""
    log = Path(f"{root}.saved")
    return log.read_text().splitlines() if log.exists() else []


def whole_steps(root: Path) -> set[int]:
    """Steps whose last save was finished. One that was begun over them and killed may have destroyed it."""
    whole: set[int] = set()
    for line in said(root):
        verb, step = line.split(" ")
        (whole.add if verb == "saved" else whole.discard)(int(step))
    return whole


def hunt(writing: Writer, kind: str, place: Path, longest_s: float) -> None:
    print(f"HF_CHECKPOINT_SEED={SEED} replays the moments")
    chance = random.Random(f"{SEED} {kind}")
    picks = 0
    for turn in range(KILLS):
        root = place / f"{kind}-{turn}"
        root.mkdir()
        # The second writer goes on over what the first one left.
        for _ in range(2):
            writing.killed_at(kind, root, chance.randrange(7), chance.uniform(0, longest_s))
            found = probed(root, "ddp")
            whole = whole_steps(root)
            if found.pick is None:
                assert not whole, (found, whole)
                continue
            picks += 1
            assert found.step is not None and found.step >= max(whole, default=0), (found, whole)
            assert writing.say(f"load {kind} {root / found.pick} {found.step}") == f"whole {found.step}", found
    assert picks > 0, "no writer came as far as one checkpoint"


@pytest.mark.attack(12)
@pytest.mark.parametrize("kind", ["rename", "marked", "file"])
def test_killed_numpy_writers(tmp_path, kind):
    with writer(sys.executable, "numpy") as writing:
        hunt(writing, kind, tmp_path, 0.05)


@pytest.mark.need("torch")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_torch_writers(tmp_path):
    """One import of torch for all: distributed checkpoint, the files of HF Trainer, and one file."""
    python = f"{torch_environment()}/bin/python"
    with writer(python, "torch") as writing:
        for kind in ("torch-dcp", "torch-trainer", "torch-file"):
            hunt(writing, kind, tmp_path, 0.1)
