"""HF_SWIM_SEEDS / 5 seeds of random faults."""

import os
from collections import Counter

import pytest

from tests.mutants.swim_mutants import MUTANTS
from tests.sim.loop import Violation
from tests.sim.swim.swarm import run

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("HF_SWIM_SEEDS", "200")) // 5
# Per 20 seeds; else the run proves little.
AT_LEAST = {"crash": 20, "leave": 20, "cut": 20, "block": 20, "stop": 20, "tag": 20, "seen DEAD": 100, "seen LEFT": 10}


@pytest.mark.timeout(900)
def test_views_never_go_back_and_all_agree_in_the_end():
    coverage: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        coverage += run(seed)
    print(coverage)
    missed = {what: coverage[what] for what, least in AT_LEAST.items() if coverage[what] < least * SEEDS // 20}
    assert not missed, f"{SEEDS} seeds covered too little: {missed}"


@pytest.mark.parametrize("name", ["incarnation-not-raised", "no-push-pull", "resurrection-after-leave"])
def test_the_swarm_notices_what_it_checks(name):
    with MUTANTS[name](), pytest.raises(Violation):
        for seed in range(1, 100):
            run(seed)
