"""The bench of gossip really kills members, and its answer has the promised shape; beside Serf where that is here."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.integration.voters import ROOT


@pytest.mark.slow
def test_the_swim_bench_sees_a_killed_member() -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HF_SWIM_SIZES": "3",
        "HF_BENCH_ROUNDS": "1",
        "HF_SPIN_SECONDS": "0",
        "HF_REST_SECONDS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench_run", "swim", "--json"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    figures = result["figures"]
    assert 0 < figures["mesh 3: to first, s"] <= figures["mesh 3: to all, s"]
    assert figures["mesh 3: kills"] == 1 and figures["mesh: memory of a member, MB"] > 0
    assert ("mesh/serf 3: to all" in result["ratios"]) == (shutil.which("serf") is not None)
