"""A trainer for tests of the stall rule: `paced_trainer.py KIND`. Every point is written with its own time."""

import os
import sys
import time
from pathlib import Path

from numpy_ddp.event_file import EventFile

STEP_S, PAUSE_S, FLUSH_S = 0.2, 8.0, 1.8


def steps(logs: EventFile, first: int, seconds: float) -> int:
    step, until = first, time.monotonic() + seconds
    while time.monotonic() < until:
        step += 1
        logs.scalars(step, {"train/loss": 1.0 / step})
        time.sleep(STEP_S)
    return step


def train(kind: str) -> None:
    checkpoints = Path(os.environ["HETEROFLOW_CHECKPOINT_PATH"])
    if kind == "slow_start":
        time.sleep(PAUSE_S)
    logs = EventFile(Path(os.environ["HETEROFLOW_TB_DIR"]))
    if kind == "held_back":
        for turn in range(6):
            time.sleep(FLUSH_S)
            for at in range(5):
                logs.scalars(turn * 5 + at + 1, {"train/loss": 1.0})
        return
    step = steps(logs, 0, 2.0)
    if kind == "hang":
        time.sleep(3600.0)
    if kind == "checkpoint":
        until = time.monotonic() + PAUSE_S
        with (checkpoints / "weights").open("wb", buffering=0) as file:
            while time.monotonic() < until:
                file.write(bytes(200_000))
                time.sleep(0.2)
    steps(logs, step, 2.0)


if __name__ == "__main__":
    train(sys.argv[1])
