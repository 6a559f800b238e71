"""A skip for a required part fails the run, whoever skipped and however."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUITE = """
import pytest

@pytest.mark.need("etcd")
def test_marked():
    pass

def test_worded():
    pytest.skip("no Go compiler here")

def test_other():
    pytest.skip("needs a terminal")
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "test_suite.py").write_text(SUITE)
    return tmp_path


def run(suite: Path, require: str, *options: str) -> subprocess.CompletedProcess[str]:
    # No PATH: whatever this machine has, the suite finds neither Go nor etcd.
    environment = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT), "HF_TEST_REPORT": str(suite / "report")}
    if require:
        environment["REQUIRE"] = require
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *options, str(suite)]
    return subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, timeout=60)


def test_a_missing_part_is_skipped_and_said(suite: Path):
    done = run(suite, "")
    assert done.returncode == 0
    assert "needs etcd: the etcd server is not installed (apt-get install etcd-server)" in done.stdout
    report = json.loads((suite / "report").read_text())
    assert report["counts"]["skipped"] == 3 and len(report["skips"]) == 3


@pytest.mark.parametrize(("require", "named"), [("etcd", "needs etcd"), ("go", "no Go compiler here")])
def test_a_required_part_may_not_be_skipped(suite: Path, require: str, named: str):
    done = run(suite, require)
    assert done.returncode == 1
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED: REQUIRE=")]
    assert len(failures) == 1 and named in failures[0]


def test_an_unrelated_skip_is_allowed(suite: Path):
    assert run(suite, "torch").returncode == 0


def test_a_run_shared_by_workers_is_reported_once(suite: Path):
    assert run(suite, "", "-n", "2").returncode == 0
    (report,) = (suite / "report").read_text().splitlines()
    assert json.loads(report)["counts"]["skipped"] == 3


def test_summary_adds_up_and_fails_with_a_failed_stage(tmp_path: Path):
    report = tmp_path / "report"
    counts = {"passed": 5, "failed": 1, "error": 1, "skipped": 1}
    report.write_text("".join(json.dumps({"counts": counts, "skips": ["Skipped: needs go"]}) + "\n" for _ in range(2)))

    def summary(failed: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "scripts.test_summary", str(report), failed, "tests 0.1 min ok"]
        return subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=30)

    good = summary("")
    assert good.returncode == 0 and good.stdout.splitlines()[-1] == "10 passed, 4 failed, 2 skipped"
    assert good.stdout.count("needs go") == 1
    assert summary("types").returncode == 1
