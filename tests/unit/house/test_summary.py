"""The totals of scripts/test, where a stage's few failures were run once more."""

from scripts.test_summary import totals


def run(passed: int, failed: int, *bad: str, error: int = 0, rerun: bool = False) -> dict[str, object]:
    counts = {"passed": passed, "failed": failed, "error": error, "skipped": 0}
    return {"counts": counts, "skips": [], "bad": list(bad), "rerun": rerun}


def test_what_passes_by_itself_is_counted_once_and_named() -> None:
    total, flaky = totals([run(10, 0), run(7, 2, "a", "b"), run(2, 0, rerun=True), run(5, 0)])
    assert (total["passed"], total["failed"], flaky) == (24, 0, ["a", "b"])


def test_what_fails_again_stays_failed() -> None:
    total, flaky = totals([run(7, 2, "a", "b"), run(1, 1, "b", rerun=True)])
    assert (total["passed"], total["failed"], flaky) == (8, 1, ["a"])


def test_an_error_of_a_fixture_is_taken_back_too() -> None:
    total, flaky = totals([run(7, 1, "a", "b", error=1), run(2, 0, rerun=True)])
    assert (total["passed"], total["failed"] + total["error"], flaky) == (9, 0, ["a", "b"])
