"""The trainer as people run it: one process a node, found by MASTER_ADDR, without the platform."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from numpy_ddp.event_file import read_scalars
from tests.free_port import free_port
from tests.waiting import until

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "examples" / "train_numpy.py"
DEADLINE_S = 40.0


class Job:
    """Two nodes with two workers each on loopback."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: list[subprocess.Popen[str]] = []

    def start(
        self, *options: str, attempt: int = 1, resume: Path | None = None, steps: int = 40, nodes: int = 2
    ) -> "Job":
        port = free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        for node in range(nodes):
            environment = {
                "PATH": os.environ["PATH"],
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "NNODES": "2",
                "NODE_RANK": str(node),
                "LOCAL_WORLD_SIZE": "2",
                "WORLD_SIZE": "4",
                "HETEROFLOW_GROUP_ID": "g1",
                "HETEROFLOW_ATTEMPT": str(attempt),
                "HETEROFLOW_CHECKPOINT_PATH": str(self.directory),
                "HETEROFLOW_TB_DIR": str(self.directory / "tb_logs"),
                "HETEROFLOW_RESUME_FROM_CHECKPOINT": str(resume or ""),
                "HETEROFLOW_HP_STEPS": str(steps),
                "HETEROFLOW_HP_CHECKPOINT_EVERY": "10",
            }
            with self.log(node).open("w") as log:
                command = [sys.executable, str(SCRIPT), *options]
                self.nodes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True))
        return self

    def log(self, node: int) -> Path:
        return self.directory / f"node-{node}.log"

    def text(self, node: int) -> str:
        return self.log(node).read_text()

    def codes(self) -> list[int]:
        return [node.wait(DEADLINE_S) for node in self.nodes]

    def until(self, what: Callable[[], bool]) -> None:
        until(lambda: "\n".join(self.text(node) for node in range(len(self.nodes))), what)

    def meta(self, step: int) -> dict[str, float]:
        loaded: dict[str, float] = json.loads((self.directory / f"step-{step}" / "meta.json").read_text())
        return loaded

    def workers(self, node: int) -> list[int]:
        pid = self.nodes[node].pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self, node: int) -> None:
        """The parent stands still meanwhile: it ends by itself, with 137, when it sees a worker dead."""
        parent = self.nodes[node].pid
        os.kill(parent, signal.SIGSTOP)
        for pid in [*self.workers(node), parent]:
            os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        for node, process in enumerate(self.nodes):
            if process.poll() is None:
                self.kill(node)
                process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    jobs: list[Job] = []

    def make(name: str) -> Job:
        jobs.append(Job(tmp_path / name))
        return jobs[-1]

    yield make
    for made in jobs:
        made.end()


def losses(one: Job) -> dict[int, float]:
    return read_scalars(one.directory / "tb_logs")["train/loss"]


def test_four_ranks_learn_and_save(job):
    one = job("a").start()
    assert one.codes() == [0, 0]
    curve = losses(one)
    assert sorted(curve) == list(range(1, 41)) and curve[40] < curve[1] / 2
    assert one.meta(40) == {"step": 40, "world": 4, "loss": pytest.approx(curve[40], rel=1e-5)}
    assert sorted(path.name for path in one.directory.glob("step-*")) == ["step-10", "step-20", "step-30", "step-40"]
    lines = one.text(1).splitlines()
    assert lines[:2] == ["rank 2 of 4 starting", "rank 3 of 4 starting"]
    assert any(line.startswith("rank 3 of 4 step 40 loss 0.") for line in lines)


def test_a_resumed_run_ends_where_the_unbroken_one_does(job):
    whole = job("whole").start()
    assert whole.codes() == [0, 0]
    first = job("resumed").start(steps=20)
    assert first.codes() == [0, 0]
    again = job("resumed").start(attempt=2, resume=first.directory / "step-20")
    assert again.codes() == [0, 0]
    assert again.meta(40) == whole.meta(40)
    assert losses(again) == losses(whole)
    assert f"rank 0 of 4 resumes from {first.directory}/step-20: step 20" in again.text(0)


def test_a_rank_that_fails_gives_its_code_and_is_named_by_the_others(job):
    one = job("a").start("--fail-at", "15", "--fail-rank", "3", "--exit-code", "7")
    assert one.codes() == [1, 7]
    assert "rank 3 of 4 step 15 fails as told, exit code 7" in one.text(1)
    assert "rank 0 of 4 lost rank 3: it closed the connection (node rank 1)" in one.text(0)
    assert "rank 1 of 4 lost rank 3: it closed the connection (node rank 1)" in one.text(0)
    assert sorted(path.name for path in one.directory.glob("step-*")) == ["step-10"]


def test_a_killed_node_is_named(job):
    one = job("a").start("--step-delay", "20", steps=10_000)
    one.until(lambda: "step 10 loss" in one.text(0))
    one.kill(1)
    assert one.codes() == [1, -signal.SIGKILL]
    assert "rank 0 of 4 lost rank 2" in one.text(0) or "rank 0 of 4 lost rank 3" in one.text(0)


def test_sigterm_to_one_node_saves_and_ends_both_with_0(job):
    one = job("a").start("--step-delay", "20", "--log-every", "1", steps=10_000)
    one.until(lambda: "step 12 loss" in one.text(0))
    one.nodes[1].send_signal(signal.SIGTERM)
    assert one.codes() == [0, 0]
    newest = max(int(path.name.removeprefix("step-")) for path in one.directory.glob("step-*"))
    assert newest >= 12 and f"rank 2 of 4 step {newest} stopped on request" in one.text(1)
    assert one.meta(newest)["step"] == newest


def test_sigterm_while_waiting_for_the_others_ends_with_143(job):
    one = job("a").start(nodes=1)
    one.until(lambda: len(one.workers(0)) == 2)
    one.nodes[0].send_signal(signal.SIGTERM)
    assert one.codes() == [143]
    assert "rank 0 of 4 was stopped before the first step" in one.text(0)


def test_keep_writing_ignores_sigterm_and_lost_peers(job):
    one = job("a").start("--keep-writing", "--trace-file", "life", "--step-delay", "10", steps=10_000)
    one.until(lambda: "step 10 loss" in one.text(1))
    one.nodes[0].send_signal(signal.SIGTERM)
    one.kill(1)
    one.until(lambda: "rank 1 of 4 keeps writing" in one.text(0) and "rank 0 of 4 keeps writing" in one.text(0))
    marks = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def ranks_seen_since() -> set[int]:
        rows = [line.split() for line in (one.directory / "life").read_text().splitlines()]
        return {int(rank) for attempt, rank, at in rows if int(at) > marks and attempt == "1"}

    one.until(lambda: ranks_seen_since() == {0, 1})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HETEROFLOW_HP_STEPS", "ten", "HETEROFLOW_HP_STEPS is 'ten'"),
        ("WORLD_SIZE", "5", "NNODES x LOCAL_WORLD_SIZE is 1 x 1"),
        ("NODE_RANK", "1", "node ranks count from 0"),
        ("HETEROFLOW_RESUME_FROM_CHECKPOINT", "/nowhere/step-3", "cannot resume from /nowhere/step-3"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, name: str, value: str, says: str):
    environment = {"PATH": os.environ["PATH"], "HETEROFLOW_CHECKPOINT_PATH": str(tmp_path), name: value}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and says in done.stdout


def test_a_rank_of_another_attempt_is_turned_away(tmp_path: Path):
    port = free_port()
    base = {"PATH": os.environ["PATH"], "MASTER_PORT": str(port), "NNODES": "2", "HETEROFLOW_HP_STEPS": "3"}
    hub = subprocess.Popen([sys.executable, str(SCRIPT)], env={**base, "HETEROFLOW_ATTEMPT": "2"})
    try:
        stale = subprocess.run(
            [sys.executable, str(SCRIPT)],
            env={**base, "NODE_RANK": "1", "HETEROFLOW_ATTEMPT": "1"},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert stale.returncode == 2 and "this is bare/2 with 2 ranks, not bare/1" in stale.stdout
        fresh = subprocess.run(
            [sys.executable, str(SCRIPT)], env={**base, "NODE_RANK": "1", "HETEROFLOW_ATTEMPT": "2"}, timeout=30
        )
        assert fresh.returncode == 0 and hub.wait(30) == 0
    finally:
        hub.kill()
        hub.wait()
