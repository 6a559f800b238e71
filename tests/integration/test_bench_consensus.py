"""The consensus bench really runs beside etcd, and its answer has the promised shape."""

import json
import os
import subprocess
import sys

import pytest

from tests.integration.voters import ROOT


@pytest.mark.slow
@pytest.mark.need("go")
@pytest.mark.need("etcd")
def test_the_consensus_bench_measures_voters_beside_etcd() -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HF_BENCH_ROUNDS": "1",
        "HF_BENCH_SECONDS": "0.5",
        "REQUIRE": "etcd",
    }
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench_run", "consensus", "--json"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["name"] == "consensus"
    for proposers in (1, 16, 64):
        assert result["figures"][f"mesh {proposers}: commits/s"] > 0
        assert result["figures"][f"etcd {proposers}: commits/s"] > 0
        assert result["ratios"][f"mesh/etcd commits, {proposers} proposers"] > 0
    assert result["ratios"]["p50/floor, 1 proposer"] > 0


def test_a_required_etcd_that_is_missing_is_a_failure() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/nowhere", "REQUIRE": "go,etcd"}
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench_run", "consensus"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "REQUIRE names etcd, but etcd is not installed" in done.stderr
