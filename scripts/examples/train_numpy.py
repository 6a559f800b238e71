#!/usr/bin/env python3
"""A data-parallel trainer that runs on any host with numpy, alone or under HeteroFlow.

One process a node starts LOCAL_WORLD_SIZE workers; they find each other at MASTER_ADDR:MASTER_PORT, sum their gradients
there, save checkpoints `step-N` and write a loss curve for TensorBoard. Settings come from the environment:

  MASTER_ADDR MASTER_PORT NNODES NODE_RANK LOCAL_WORLD_SIZE WORLD_SIZE       who takes part (default: one worker, alone)
  HETEROFLOW_CHECKPOINT_PATH HETEROFLOW_RESUME_FROM_CHECKPOINT HETEROFLOW_TB_DIR     where to save, resume, log
  HETEROFLOW_HP_STEPS HETEROFLOW_HP_LEARNING_RATE HETEROFLOW_HP_SEED HETEROFLOW_HP_HIDDEN HETEROFLOW_HP_BATCH_SIZE
  HETEROFLOW_HP_CHECKPOINT_EVERY (steps)

Exit codes: 0 done, or stopped by SIGTERM after saving; 1 a peer was lost; 2 a wrong setting, checkpoint or rendezvous;
70 the trainer itself broke; 143 stopped before the first step.
"""

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from numpy_ddp.all_reduce import Link
    from numpy_ddp.regression import Regression, Vector

LOST_PEER, WRONG_SETUP, CRASHED, STOPPED_EARLY = 1, 2, 70, 143
RENDEZVOUS_S = 60.0
SILENCE_S = 120.0
SIBLINGS_S = 2.0
# A drill that breaks leaves ranks behind that ignore everything: they end by themselves.
KEEP_WRITING_S = 600.0

Value = TypeVar("Value")


class WrongSetting(Exception):
    """Is raised when a setting cannot be used; its text names the setting."""


def setting(environment: Mapping[str, str], name: str, convert: Callable[[str], Value], default: Value) -> Value:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        return convert(text)
    except ValueError:
        raise WrongSetting(f"{name} is {text!r}, which is not a valid {convert.__name__}") from None


@dataclass(frozen=True)
class Place:
    """Where this node stands in the job."""

    master: str
    port: int
    node: int
    nodes: int
    local_world: int
    world: int
    job: str
    attempt: int

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Place":
        nodes = setting(environment, "NNODES", int, 1)
        local_world = setting(environment, "LOCAL_WORLD_SIZE", int, 1)
        world = setting(environment, "WORLD_SIZE", int, nodes * local_world)
        if world != nodes * local_world:
            raise WrongSetting(f"WORLD_SIZE is {world}, but NNODES x LOCAL_WORLD_SIZE is {nodes} x {local_world}")
        node = setting(environment, "NODE_RANK", int, 0)
        if not 0 <= node < nodes:
            raise WrongSetting(f"NODE_RANK is {node}, but NNODES is {nodes}: node ranks count from 0")
        attempt = setting(environment, "HETEROFLOW_ATTEMPT", int, 1)
        return cls(
            master=environment.get("MASTER_ADDR") or "127.0.0.1",
            port=setting(environment, "MASTER_PORT", int, 29500),
            node=node,
            nodes=nodes,
            local_world=local_world,
            world=world,
            job=f"{environment.get('HETEROFLOW_GROUP_ID') or 'bare'}/{attempt}",
            attempt=attempt,
        )

    @property
    def ranks(self) -> range:
        return range(self.node * self.local_world, (self.node + 1) * self.local_world)


@dataclass(frozen=True)
class Run:
    """What to train and what to leave behind."""

    steps: int
    learning_rate: float
    seed: int
    hidden: int
    batch: int
    checkpoint_every: int
    checkpoints: Path | None
    resume: Path | None
    tensorboard: Path | None

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Run":
        return cls(
            steps=setting(environment, "HETEROFLOW_HP_STEPS", int, 100),
            learning_rate=setting(environment, "HETEROFLOW_HP_LEARNING_RATE", float, 0.05),
            seed=setting(environment, "HETEROFLOW_HP_SEED", int, 1),
            hidden=setting(environment, "HETEROFLOW_HP_HIDDEN", int, 32),
            batch=setting(environment, "HETEROFLOW_HP_BATCH_SIZE", int, 64),
            checkpoint_every=setting(environment, "HETEROFLOW_HP_CHECKPOINT_EVERY", int, 20),
            checkpoints=setting(environment, "HETEROFLOW_CHECKPOINT_PATH", Path, None),
            resume=setting(environment, "HETEROFLOW_RESUME_FROM_CHECKPOINT", Path, None),
            tensorboard=setting(environment, "HETEROFLOW_TB_DIR", Path, None),
        )


def parse_options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Data-parallel training in numpy; settings come from the environment.")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--step-delay", type=float, default=0.0, metavar="MS", help="sleep this long in every step")
    drills = parser.add_argument_group("drills")
    drills.add_argument("--trace-file", metavar="NAME", help="append proof of life to this file beside the checkpoints")
    drills.add_argument("--keep-writing", action="store_true", help="ignore SIGTERM and lost peers, and stay alive")
    drills.add_argument("--fail-at", type=int, metavar="STEP")
    drills.add_argument("--fail-rank", type=int, default=0, metavar="RANK")
    drills.add_argument("--exit-code", type=int, default=3)
    return parser.parse_args(arguments)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Worker:
    """One rank."""

    def __init__(self, rank: int, place: Place, run: Run, options: argparse.Namespace, stop: threading.Event) -> None:
        self.rank = rank
        self.place = place
        self.run = run
        self.options = options
        self.stop = stop
        self.name = f"rank {rank} of {place.world}"
        self.node_process = os.getppid()

    def main(self) -> int:
        from numpy_ddp.all_reduce import PeerLost, RendezvousFailed, StopRequested
        from numpy_ddp.step_checkpoint import CheckpointRefused

        self._trace()
        try:
            return self._train()
        except PeerLost as lost:
            owner = lost.rank // self.place.local_world
            say(f"{self.name} {lost} (node rank {owner}); the sums need every rank, so this rank ends too")
            return self._outlive() if self.options.keep_writing else LOST_PEER
        except StopRequested:
            say(f"{self.name} was stopped before the first step")
            return STOPPED_EARLY
        except (RendezvousFailed, CheckpointRefused) as error:
            say(f"{self.name} cannot start: {error}")
            return WRONG_SETUP

    def _trace(self) -> None:
        from numpy_ddp import life_trace

        if self.options.trace_file and self.run.checkpoints:
            life_trace.start(self.run.checkpoints / self.options.trace_file, self.place.attempt, self.rank)

    def _outlive(self) -> int:
        say(f"{self.name} keeps writing, as it was told to")
        time.sleep(KEEP_WRITING_S)
        return LOST_PEER

    def _train(self) -> int:
        from numpy_ddp.regression import Regression

        model = Regression(self.run.seed, self.run.hidden, self.run.batch)
        link, step, parameters = self._join(model)
        try:
            return self._steps(model, link, step, parameters)
        finally:
            link.close()

    def _join(self, model: "Regression") -> "tuple[Link, int, Vector]":
        """Rank 0 alone reads the checkpoint: whatever the others can see, all start from the same numbers."""
        import numpy as np

        from numpy_ddp import step_checkpoint
        from numpy_ddp.all_reduce import Rank, Rendezvous, find, gather

        me = Rank(self.rank, self.place.world, self.place.job)
        at = Rendezvous(self.place.master, self.place.port, RENDEZVOUS_S, SILENCE_S, self.stop.is_set)
        if self.rank != 0:
            spoke, start = find(me, at)
            return spoke, int(start[0]), start[1:]
        step, parameters = 0, model.initial()
        if self.run.resume:
            meta, parameters = step_checkpoint.load(self.run.resume, model.size)
            step = meta.step
            say(f"{self.name} resumes from {self.run.resume}: step {step}, loss {meta.loss:.6f}")
        return gather(me, at, np.concatenate(([float(step)], parameters))), step, parameters

    def _steps(self, model: "Regression", link: "Link", start: int, parameters: "Vector") -> int:
        import numpy as np

        if start >= self.run.steps:
            say(f"{self.name} step {start} of {self.run.steps}: nothing left to do")
            return 0
        ledger = Ledger(self.run, self.place.world, start) if self.rank == 0 else None
        for step in range(start + 1, self.run.steps + 1):
            if step == self.options.fail_at and self.rank == self.options.fail_rank:
                say(f"{self.name} step {step} fails as told, exit code {self.options.exit_code}")
                return int(self.options.exit_code)
            if os.getppid() != self.node_process and not self.options.keep_writing:
                say(f"{self.name} step {step}: the process that started it is gone, so it ends too")
                return LOST_PEER
            if self.options.step_delay:
                self.stop.wait(self.options.step_delay / 1000)
            loss, gradient = model.loss_and_gradient(parameters, step, self.rank)
            total = link.reduce(np.concatenate(([float(self.stop.is_set()), loss], gradient)))
            stopping, loss = bool(total[0]), float(total[1]) / self.place.world
            parameters = parameters - self.run.learning_rate / self.place.world * total[2:]
            if step == 1 or step % self.options.log_every == 0 or step == self.run.steps:
                say(f"{self.name} step {step} loss {loss:.6f}")
            if ledger:
                ledger.note(step, loss, parameters, last=stopping or step == self.run.steps)
            if stopping:
                say(f"{self.name} step {step} stopped on request")
                return 0
        say(f"{self.name} done at step {self.run.steps}")
        return 0


class Ledger:
    """What rank 0 leaves behind: the curve and the checkpoints."""

    def __init__(self, run: Run, world: int, start: int) -> None:
        from numpy_ddp.event_file import EventFile

        self.run = run
        self.world = world
        self.events = EventFile(run.tensorboard, start or None) if run.tensorboard else None
        if not run.checkpoints:
            say("HETEROFLOW_CHECKPOINT_PATH is not set: nothing will be saved")

    def note(self, step: int, loss: float, parameters: "Vector", last: bool) -> None:
        from numpy_ddp.step_checkpoint import Meta, save

        if self.events:
            self.events.scalars(step, {"train/loss": loss, "train/learning_rate": self.run.learning_rate})
        if self.run.checkpoints and (last or step % self.run.checkpoint_every == 0):
            path = save(self.run.checkpoints, Meta(step, self.world, loss), parameters)
            say(f"saved {path}")
        if self.events and last:
            self.events.close()


class Node:
    """The workers of this host: started together, and ended together when one fails."""

    def __init__(self, place: Place, run: Run, options: argparse.Namespace) -> None:
        self.place = place
        self.run = run
        self.options = options
        self.stop = threading.Event()
        self.workers: dict[int, int] = {}

    def main(self) -> int:
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGINT, self._pass_on)
        for rank in self.place.ranks:
            pid = os.fork()
            if pid == 0:
                os._exit(self._work(rank))
            self.workers[pid] = rank
        if self.stop.is_set():
            self._signal_all(signal.SIGTERM)  # it came while the workers were being made
        return self._wait()

    def _work(self, rank: int) -> int:
        """Workers have sessions of their own, as those of torchrun have."""
        os.setsid()
        self.workers = {}
        try:
            return Worker(rank, self.place, self.run, self.options, self.stop).main()
        except Exception:
            traceback.print_exc()
            return CRASHED

    def _pass_on(self, number: int, frame: object) -> None:
        if self.options.keep_writing:
            return
        self.stop.set()
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in list(self.workers):
            os.kill(pid, number)

    def _wait(self) -> int:
        """A rank's own failure ends the node at once; one that lost a peer leaves its siblings time to say more."""
        lost_at: float | None = None
        early = False
        while self.workers:
            pid, status = os.waitpid(-1, 0 if lost_at is None or self.options.keep_writing else os.WNOHANG)
            if pid == 0:
                if lost_at is not None and time.monotonic() - lost_at > SIBLINGS_S:
                    break
                time.sleep(0.02)
                continue
            code = self._reap(pid, status)
            if code == LOST_PEER:
                lost_at = lost_at or time.monotonic()
            elif code == STOPPED_EARLY:
                early = True  # the siblings were told to stop as well
            elif code and not self.options.keep_writing:
                self._signal_all(signal.SIGKILL)
                return code
        self._signal_all(signal.SIGKILL)
        if early:
            return STOPPED_EARLY
        return 0 if lost_at is None else LOST_PEER

    def _reap(self, pid: int, status: int) -> int:
        rank = self.workers.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return code
        say(f"rank {rank} of {self.place.world} was killed by signal {-code}")
        return 128 - code


def main(arguments: list[str]) -> int:
    options = parse_options(arguments)
    try:
        place, run = Place.read(os.environ), Run.read(os.environ)
    except WrongSetting as error:
        say(f"cannot start: {error}")
        return WRONG_SETUP
    for rank in place.ranks:
        say(f"rank {rank} of {place.world} starting")
    # One thread a worker: forking is safe only while this process has no other, and BLAS would make some at import.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    import numpy_ddp.step_checkpoint  # noqa: F401 - numpy is loaded once, before the workers share it

    return Node(place, run, options).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
