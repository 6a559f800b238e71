"""The end of scripts/test: minutes of each stage, what was skipped and how to get it, one line of totals."""

import json
import sys
from pathlib import Path


def main(report: str, failed: str, minutes: list[str]) -> int:
    runs = [json.loads(line) for line in Path(report).read_text().splitlines()]
    total = {name: sum(run["counts"][name] for run in runs) for name in ("passed", "failed", "error", "skipped")}
    for line in minutes:
        print(line)
    skips = sorted({reason for run in runs for reason in run["skips"]})
    if skips:
        print("\nSkipped on this machine, with what they need:")
        for reason in skips:
            print(f"  {reason.removeprefix('Skipped: ')}")
    if failed:
        print(f"\nFailed stages: {failed}")
    print(f"\n{total['passed']} passed, {total['failed'] + total['error']} failed, {total['skipped']} skipped")
    return 1 if failed or total["passed"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
