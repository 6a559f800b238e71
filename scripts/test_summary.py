"""The end of scripts/test: minutes of each stage, what was skipped and how to get it, what is flaky, the totals.

`--failed-last REPORT` prints how many tests failed in the run that the report's last line tells of.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

BAD = ("failed", "error")


def totals(runs: list[dict[str, Any]]) -> tuple[Counter[str], list[str]]:
    """Counts over all runs, and the tests that failed and then passed by themselves (`rerun`: of the run before it)."""
    total: Counter[str] = Counter()
    flaky: list[str] = []
    first: dict[str, Any] = {}
    for run in runs:
        total.update(run["counts"])
        if run.get("rerun"):
            for name in BAD:
                total[name] -= first["counts"][name]
            flaky += sorted(set(first["bad"]) - set(run["bad"]))
        first = run
    return total, flaky


def main(report: str, failed: str, minutes: list[str]) -> int:
    runs = _read(report)
    total, flaky = totals(runs)
    for line in minutes:
        print(line)
    skips = sorted({reason for run in runs for reason in run["skips"]})
    if skips:
        print("\nSkipped on this machine, with what they need:")
        for reason in skips:
            print(f"  {reason.removeprefix('Skipped: ')}")
    if flaky:
        print("\nFLAKY, failed and then passed by itself; find out why:")
        for test in flaky:
            print(f"  {test}")
    if failed:
        print(f"\nFailed stages: {failed}")
    print(f"\n{total['passed']} passed, {total['failed'] + total['error']} failed, {total['skipped']} skipped")
    return 1 if failed or total["passed"] == 0 else 0


def _read(report: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(report).read_text().splitlines()]


if __name__ == "__main__":
    if sys.argv[1] == "--failed-last":
        print(len(_read(sys.argv[2])[-1]["bad"]))
    else:
        sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
