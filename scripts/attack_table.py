"""The attacks of tests/security/catalogue.py: which tests try each, how often, and what came of it.

Arguments go to pytest (`-k`, paths). Exit code 1 where a test failed, or where an attack is neither tried nor said to
be on a part that is not built."""

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.security.catalogue import ATTACKS, NOT_BUILT

_NAMES_MOST = 3
# Those with an engine freeze and kill the one that all of them use, so they run one after the other.
_ALL = (["-n", "2", "--ignore=tests/docker", "tests"], ["tests/docker"])


@dataclass(slots=True)
class Row:
    tests: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


class Collected:
    """A pytest plugin. A test's outcome is that of its worst phase; what it tried it says at its end."""

    def __init__(self) -> None:
        self.rows: defaultdict[int, Row] = defaultdict(Row)
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        properties = dict(report.user_properties)
        if "attacks" not in properties:
            return
        if report.outcome != "passed" or report.nodeid not in self._outcomes:
            self._outcomes[report.nodeid] = report.outcome
        if report.when != "teardown":
            return
        outcome = self._outcomes.pop(report.nodeid)
        for number in properties["attacks"]:
            row = self.rows[number]
            row.tests[report.nodeid.rpartition("::")[2].partition("[")[0]] += 1
            row.outcomes[outcome] += 1
            if outcome == "passed":
                row.attempts += properties.get("attempts", 1)


def table(rows: dict[int, Row]) -> str:
    lines = [f"{'':>3} {'attack':<72} {'tests':>5} {'attempts':>9}  result"]
    family = ""
    for number, (of, title) in ATTACKS.items():
        if of != family:
            family = of
            lines.append(f"    -- {of}")
        row = rows.get(number, Row())
        tests = sum(row.tests.values())
        lines.append(
            f"{number:>3} {title:<72} {tests or '':>5} {f'{row.attempts:,}' if tests else '':>9}  {result(number, row)}"
        )
        names = sorted(row.tests)
        if names:
            more = f" and {len(names) - _NAMES_MOST} more" if len(names) > _NAMES_MOST else ""
            lines.append(f"    {', '.join(names[:_NAMES_MOST])}{more}")
    return "\n".join(lines)


def result(number: int, row: Row) -> str:
    if row.outcomes["failed"]:
        return f"FAILED: {row.outcomes['failed']}"
    said = f"part not built yet: {NOT_BUILT[number]}" if number in NOT_BUILT else ""
    if not row.outcomes["passed"]:
        return said or ("skipped" if row.outcomes["skipped"] else "NOT TRIED")
    skipped = f", {row.outcomes['skipped']} skipped" if row.outcomes["skipped"] else ""
    return f"blocked{skipped}" + (f"; {said}" if said else "")


def main(arguments: list[str]) -> int:
    collected = Collected()
    codes = [
        int(pytest.main(["-m", "attack", "-q", "--no-header", *some], plugins=[collected]))
        for some in ([arguments] if arguments else _ALL)
    ]
    print()
    print(table(collected.rows))
    untried = [number for number in ATTACKS if result(number, collected.rows.get(number, Row())) == "NOT TRIED"]
    return 1 if any(code not in (0, 5) for code in codes) or (untried and not arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
