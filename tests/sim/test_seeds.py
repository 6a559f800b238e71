"""The seeded simulation: HF_SIM_SEEDS seeds (200, in CI 2,000) over all cores, every invariant at every event."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.batch import run_seed, run_seeds, table

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("HF_SIM_SEEDS", "200"))
# Per 200 seeds; a simulation that never reaches these proves nothing about them.
AT_LEAST = {
    "commits": 15_000,
    "terms": 300,
    "overwritten": 10,
    "reads": 5_000,
    "answers": 400,
    "starts": 800,
    "adoptions": 40,
    "fenced": 60,
    "expiries": 40,
    "lost": 40,
    "rejoins": 40,
    "rollbacks": 50,
    "requeues": 50,
    "completed": 300,
    "failed": 40,
    "stopped": 15,
    "power losses": 20,
    "pauses": 100,
    "isolations": 60,
    "partitions": 100,
    "beat step-downs": 5,
    "blackouts": 3,
    "deleted": 5,
    "ContinuePhase: ok": 5,
    "MoveGroup: ok": 30,
    "EndDrain: ok": 50,
    "TurnMaintenance: ok": 20,
    "HoldMesh: ok": 10,
    "paused": 5,
    "FailGroup: ok": 20,
    "rebuilds": 30,
    "ResumeGroup: ok": 5,
}


@pytest.mark.timeout(900)
def test_every_invariant_holds_over_all_seeds():
    coverage: Counter[str] = Counter()
    for result in run_seeds(range(1, SEEDS + 1), jobs=os.cpu_count() or 1):
        assert not result.violation, result.report()
        coverage += result.coverage
    print(table(coverage))
    missed = {what: coverage[what] for what, least in AT_LEAST.items() if coverage[what] < least * SEEDS // 200}
    assert not missed, f"{SEEDS} seeds covered too little: {missed}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_is_the_same_run_every_time(seed):
    first = run_seed(seed, hashing=True)
    assert run_seed(seed, hashing=True).signature == first.signature
    other_hashes = {
        "PYTHONHASHSEED": str(1000 + seed),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", str(seed)],
        env=other_hashes,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"signature {first.signature}")


def test_different_seeds_are_different_runs():
    assert len({run_seed(seed).signature for seed in range(1, 6)}) == 5


def test_a_broken_run_says_what_where_and_how_to_replay():
    result = run_seed(3, mutant="ack-before-fsync")
    report = result.report()
    assert "commit implies durable on a quorum" in report
    assert "replay: scripts/sim --seed 3 -v" in report
    assert len(result.story.splitlines()) > 1
