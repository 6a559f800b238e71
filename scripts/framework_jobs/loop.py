"""What the small trainers of this directory share: settings, one line a write, and SIGTERM as a wish to stop."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

STEPS = int(os.environ.get("HETEROFLOW_HP_STEPS") or 100)
DELAY_S = float(os.environ.get("HETEROFLOW_HP_STEP_DELAY_MS") or 0) / 1000
RATE = float(os.environ.get("HETEROFLOW_HP_LEARNING_RATE") or 0.05)
EVERY = 10


def checkpoints() -> Path:
    return Path(os.environ["HETEROFLOW_CHECKPOINT_PATH"])


def resume() -> Path | None:
    text = os.environ.get("HETEROFLOW_RESUME_FROM_CHECKPOINT")
    return Path(text) if text else None


class Rank:
    """One process of the world, as it speaks."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world, self.asked = rank, world, False
        # After the framework has started: some take signals themselves.
        signal.signal(signal.SIGTERM, self._ask)
        self.say(f"started, pid {os.getpid()}")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def say(self, text: str) -> None:
        sys.stdout.write(f"rank {self.rank} of {self.world} {text}\n")
        sys.stdout.flush()

    def resumes(self, path: object, step: int, loss: float) -> None:
        self.say(f"resumes from {path}: step {step}, loss {loss:.6f}")

    def stepped(self, step: int, loss: float, last: bool) -> None:
        if last or step == 1 or step % EVERY == 0:
            self.say(f"step {step} loss {loss:.6f}")
