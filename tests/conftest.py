"""What holds for the whole suite: needed parts, and the figures that scripts/test sums up."""

import functools
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts import forbidden_skips, need, required

COUNTED = ("passed", "failed", "error", "skipped")


def pytest_configure(config: pytest.Config) -> None:
    # A shell without job control starts what it puts into the background with SIGINT ignored; children inherit that,
    # and then no test of Ctrl-C could pass.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "need(part): skipped where the outside part is missing; see tests/parts.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if numbers := sorted({number for marker in item.iter_markers("attack") for number in marker.args}):
            item.user_properties.append(("attacks", numbers))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Of a property, each example is an attempt."""
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    if handle is None or "attacks" not in dict(item.user_properties):
        yield
        return
    examples, inner = 0, handle.inner_test

    @functools.wraps(inner)
    def counting(*arguments: Any, **named: Any) -> Any:
        nonlocal examples
        examples += 1
        return inner(*arguments, **named)

    handle.inner_test = counting
    try:
        yield
    finally:
        handle.inner_test = inner
        item.user_properties.append(("attempts", examples))


@pytest.fixture
def attempts(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """Counts what a test of attacks tries, for the table: `attempts["tried"] += 1`. Without it a test is one."""
    counted: Counter[str] = Counter()
    yield counted
    request.node.user_properties.append(("attempts", counted.total()))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("need"):
        need(marker.args[0])


def _skip_reasons(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return []
    reports = reporter.stats.get("skipped", [])
    return [str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr) for report in reports]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """A skip for a required part fails the run. Set before the terminal prints its summary, which shows the reason."""
    if not hasattr(session.config, "workerinput") and forbidden_skips(_skip_reasons(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = _skip_reasons(config)
    for reason in sorted(set(forbidden_skips(reasons))):
        terminalreporter.write_line(
            f"FAILED: REQUIRE={','.join(required())} does not allow this skip: {reason}", red=True
        )
    report = os.environ.get("HF_TEST_REPORT")
    # Workers of a shared run summarise too; their tests are in the summary of the run that shares them out.
    if report and not hasattr(config, "workerinput"):
        counts = {name: len(terminalreporter.stats.get(name, [])) for name in COUNTED}
        bad = {report.nodeid for name in ("failed", "error") for report in terminalreporter.stats.get(name, [])}
        line = json.dumps(
            {
                "counts": counts,
                "skips": sorted(set(reasons)),
                "bad": sorted(bad),
                "rerun": bool(os.environ.get("HF_TEST_RERUN")),
            }
        )
        with Path(report).open("a") as file:
            file.write(line + "\n")
