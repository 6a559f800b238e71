#!/usr/bin/env python3
"""Data-parallel training in PyTorch, started by torchrun: gloo on CPUs, NCCL where there are cards.

    torchrun --nproc_per_node=$LOCAL_WORLD_SIZE train_torch.py

Under HeteroFlow that very command is right on any number of nodes: torchrun takes the rest from PET_* variables. Saves
`step-N` directories finished by rename, goes on from HETEROFLOW_RESUME_FROM_CHECKPOINT, writes a loss curve to
HETEROFLOW_TB_DIR, and on SIGTERM saves at the next step, on which all ranks agree.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from numpy_ddp.event_file import EventFile

try:
    import heteroflow_report as report
except ImportError:  # started by hand
    report = None

FEATURES, HIDDEN, BATCH = 16, 64, 64


def hyper(name: str, default: str) -> str:
    return os.environ.get(f"HETEROFLOW_HP_{name}") or default


def directory(name: str) -> Path | None:
    text = os.environ.get(name)
    return Path(text) if text else None


def say(text: str) -> None:
    """In one write: torchrun's workers share one pipe, and print() writes the end of the line apart."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Stop:
    """SIGTERM from the platform or from torchrun, whichever comes first."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def save(root: Path, step: int, loss: float, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Under another name first: a directory called step-N is always whole."""
    final, work = root / f"step-{step}", root / f".tmp-step-{step}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, work / "state.pt")
    meta = {"step": step, "loss": loss, "world": dist.get_world_size()}
    (work / "meta.json").write_text(json.dumps(meta) + "\n")
    for path in (*work.iterdir(), work):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    shutil.rmtree(final, ignore_errors=True)
    work.rename(final)
    say(f"saved {final}")


def batch(truth: nn.Module, step: int, rank: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Of its step and rank alone, so that a resumed run sees what the first one would have seen."""
    source = torch.Generator().manual_seed(step * 100_003 + rank)
    x = torch.randn(BATCH, FEATURES, generator=source).to(device)
    with torch.no_grad():
        return x, truth(x)


def train(options: argparse.Namespace, stop: Stop) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    steps, every = int(hyper("STEPS", "100")), int(hyper("CHECKPOINT_EVERY", "20"))
    root, resume = directory("HETEROFLOW_CHECKPOINT_PATH"), directory("HETEROFLOW_RESUME_FROM_CHECKPOINT")
    torch.manual_seed(int(hyper("SEED", "1")))
    truth = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    inner = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)).to(device)
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(hyper("LEARNING_RATE", "0.05")), momentum=0.9)
    begun = 0
    if resume is not None:
        state = torch.load(resume / "state.pt", map_location=device, weights_only=True)
        inner.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        meta = json.loads((resume / "meta.json").read_text())
        begun = int(meta["step"])
        say(f"rank {rank} of {world} resumes from {resume}: step {begun}, loss {meta['loss']:.6f}")
    curves = directory("HETEROFLOW_TB_DIR")
    events = EventFile(curves, begun or None) if rank == 0 and curves is not None else None
    for step in range(begun + 1, steps + 1):
        x, y = batch(truth, step, rank, device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        # One more sum of two numbers: the mean loss, and whether anyone was asked to stop.
        shared = torch.tensor([loss.item() / world, float(stop.asked)], device=device)
        dist.all_reduce(shared)
        mean, stopping = float(shared[0]), bool(shared[1])
        last = stopping or step == steps
        if last or step == 1 or step % options.log_every == 0:
            say(f"rank {rank} of {world} step {step} loss {mean:.6f}")
        if rank == 0:
            if report is not None:
                report.step(step, loss=mean, lr=optimizer.param_groups[0]["lr"])
            if events is not None:
                events.scalars(step, {"train/loss": mean})
            if root is not None and (last or step % every == 0):
                if report is not None and last:
                    report.phase("save")
                save(root, step, mean, inner, optimizer)
        if stopping:
            say(f"rank {rank} of {world} stopped on request at step {step}")
            return
        time.sleep(options.step_delay / 1000)
    say(f"rank {rank} of {world} done at step {steps}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Settings come from the environment; see the top of this file.")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--step-delay", type=float, default=0.0, metavar="MS", help="sleep this long after every step")
    options = parser.parse_args()
    stop = Stop()
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    say(f"rank {dist.get_rank()} of {dist.get_world_size()} started, pid {os.getpid()}")
    try:
        train(options, stop)
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
