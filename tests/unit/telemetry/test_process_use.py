"""What real processes use, read from /proc."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count

import pytest

from agentd.telemetry.process_use import ProcessUse, Use
from tests.waiting import until

SPIN = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
WRITE = "import sys\nwhile True:\n    open('/dev/null', 'wb', 0).write(b'x' * 1000000)"


@pytest.fixture
def running():
    started = []

    def start(code: str) -> int:
        process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        started.append(process)
        return process.pid

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


def seen(use: ProcessUse, pid: int, wanted: Callable[[Use], bool]) -> Use:
    """Looks as an agent does, until the task shows what is wanted. Time is told faster, so that the table is read
    with each look."""
    begun, looks = time.monotonic(), count(1)

    def look() -> Use:
        found = use.look({"task": pid}, time.monotonic() - begun + next(looks) * 10.0).get("task")
        assert found is not None and wanted(found), found
        return found

    found: Use = until("the task to show it", look, every_s=0.1)
    return found


def test_a_child_counts_for_its_task(running):
    # Ten seconds are told for each tenth: a whole core is one percent.
    assert seen(ProcessUse(), running(SPIN), lambda use: use.cpu_percent > 0.2).cpu_percent < 5.0


def test_bytes_written(running):
    assert seen(ProcessUse(), running(WRITE), lambda use: (use.io_bytes_s or 0) > 1_000_000)


def test_a_process_that_begins_later_is_known_after_the_next_look_at_the_table(running):
    late = f"import subprocess, sys, time; time.sleep(1); subprocess.run([sys.executable, '-c', {WRITE!r}])"
    pid = running(late)
    often, seldom = ProcessUse(table_every_s=5.0), ProcessUse(table_every_s=1e9)
    assert seldom.look({"task": pid}, 0.0) == {}
    assert seen(often, pid, lambda use: (use.io_bytes_s or 0) > 1_000_000)
    assert (seldom.look({"task": pid}, 10.0)["task"].io_bytes_s or 0) < 1_000_000


def test_one_who_sleeps_uses_nothing(running):
    use = ProcessUse()
    pid = running("import time; time.sleep(600)")
    # The look that sees no processor time may still see what its start read.
    assert seen(use, pid, lambda found: (found.cpu_percent, found.io_bytes_s) == (0.0, 0.0))


def test_a_task_that_is_not_there_and_one_that_leaves(running):
    use = ProcessUse()
    pid = running("import time; time.sleep(600)")
    assert use.look({"gone": 2**22 + 1, "task": pid}, 0.0) == {}
    assert set(use.look({"gone": 2**22 + 1, "task": pid}, 2.0)) == {"task"}
    assert use.look({}, 4.0) == {}
    assert use.look({"task": pid}, 6.0) == {}, "a first look has nothing to compare with"
