"""Every Raft mutant is killed by a scenario that shows its damage, and those that etcd would answer otherwise by the
lock-step oracle too. The scenarios pass without the mutant (tests/unit/raft/test_scenarios.py)."""

import os

import pytest

from tests.mutants.raft_mutants import MUTANTS, OWN_MUTANTS
from tests.oracle.lockstep import run_seeds
from tests.oracle.oracle import missing
from tests.oracle.schedule import Schedule
from tests.unit.raft.scenario import FOLDER, difference, run_text

# The scenario that must go red, and the line of damage that the mutant makes in it.
KILLERS = {
    "vote-not-persisted": ("restart", "INVARIANT: 3 and 1 both lead term 1"),
    "commit-older-term-by-count": ("figure_8", "INVARIANT: 5 applies another entry at 2 than was applied elsewhere"),
    "ack-before-fsync": ("ack_after_fsync", "1 LEADER term=1 vote=1 leader=1 commit=2 applied=2 last=2"),
    "vote-ignores-log-freshness": ("log_freshness", "2/2:-"),
    "stale-read-index": ("read_index", "stale at 1"),
    "leads-after-handing-over": ("step_down", "newest 1, acknowledged by a quorum 1"),
}

ALL = MUTANTS | OWN_MUTANTS


def test_every_mutant_has_a_killer() -> None:
    assert KILLERS.keys() == ALL.keys()


@pytest.mark.parametrize("name", ALL)
def test_killed_by_scenario(name: str) -> None:
    scenario, damage = KILLERS[name]
    path = FOLDER / f"{scenario}.txt"
    text = path.read_text()
    assert not difference(path)
    with ALL[name]():
        assert difference(path), f"{name} survives {scenario}"
        assert run_text(text).count(damage) > text.count(damage), f"{damage!r} is not what {name} does"
    assert not difference(path), "the patch was not undone"


@pytest.mark.oracle
@pytest.mark.parametrize("name", MUTANTS)
def test_killed_by_lockstep(name: str) -> None:
    if reason := missing():
        if "go" in os.environ.get("REQUIRE", "").split(","):
            pytest.fail(f"REQUIRE has go, but {reason}")
        pytest.skip(f"mutants against etcd not run: {reason}")
    with MUTANTS[name]():
        counts, differences = run_seeds(range(1, 200), stop_at=1)
    assert differences, f"{name} survives {counts['runs']} runs"


@pytest.mark.parametrize("name", ["vote-ignores-log-freshness", "stale-read-index"])
def test_killed_by_invariants_of_random_schedules(name: str) -> None:
    """Without etcd, the schedules' own invariants see these; the others are too rare for it."""
    with MUTANTS[name]():
        for seed in range(1, 300):
            schedule = Schedule(seed, None)
            schedule.run()
            if schedule.counts["stopped by an invariant"]:
                return
    pytest.fail(f"{name} survives")
