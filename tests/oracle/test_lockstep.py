"""Our core in lock-step with etcd's raft library. HF_LOCKSTEP_RUNS=2000 for the full run."""

import os
import time

import pytest

from mesh.core.raft import etcd_options
from tests.oracle.lockstep import report, run_many, run_seeds, shortfalls
from tests.oracle.oracle import missing

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def needs_go() -> None:
    if reason := missing():
        if "go" in os.environ.get("REQUIRE", "").split(","):
            pytest.fail(f"REQUIRE has go, but {reason}")
        pytest.skip(f"lock-step with etcd not run: {reason}")


def test_every_answer_equals_etcds(capsys: pytest.CaptureFixture[str]) -> None:
    runs = int(os.environ.get("HF_LOCKSTEP_RUNS", "60"))
    first = int(os.environ.get("HF_LOCKSTEP_FIRST", "1"))
    start = time.monotonic()
    counts, differences = run_many(first, runs, jobs=2 if runs >= 200 else 1)
    with capsys.disabled():
        print("\nlock-step with etcd's raft: " + report(counts, time.monotonic() - start))
    assert not differences, "\n".join(map(str, differences))
    assert counts["stopped by an invariant"] == 0
    assert counts["runs with 50 events or more"] == counts["runs"] == runs
    if runs >= 2000:
        assert not shortfalls(counts)


@pytest.mark.parametrize("name", etcd_options())
def test_every_option_is_a_difference_that_lockstep_sees(name: str) -> None:
    """An option that lock-step could not tell from etcd would be a difference nobody checks."""
    options = etcd_options()
    del options[name]  # type: ignore[misc]  # any of its keys
    counts, differences = run_seeds(range(1, 1000), stop_at=1, options=options)
    assert differences, f"{counts['runs']} runs do not see {name}"
