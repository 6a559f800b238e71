"""The rows about exit codes, run by the shell that runs tasks: a training that fails with 7 must not end with 0 exactly
where the row does not refuse it, and one that succeeds must end with 0 exactly where no row says `no_success`."""

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.unit.guards.rows import every_row

MEASURED = [row for _, row in every_row() if row.get("measured") in ("shell", "dash")]


@pytest.fixture(scope="module")
def place():
    with tempfile.TemporaryDirectory() as name:
        programs = Path(name) / "bin"
        programs.mkdir()
        silent = dict.fromkeys(("tensorboard", "python", "cp", "numactl"), "exit 0")
        for program, body in (("torchrun", 'exit "$TRAINED"'), *silent.items(), ("numactl", 'shift; exec "$@"')):
            path = programs / program
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        (Path(name) / "notify").symlink_to("bin/cp")
        yield Path(name)


@pytest.mark.parametrize("row", MEASURED, ids=[str(row["command"]) for row in MEASURED])
def test_a_failure_is_lost_where_the_row_says_so(row, place):
    assert (ended_with(row, place, trained=7) == 0) == ("hidden_exit_code" in row.get("errors", ()))


@pytest.mark.parametrize("row", MEASURED, ids=[str(row["command"]) for row in MEASURED])
def test_a_success_is_one_unless_the_row_refuses_it(row, place):
    refused = {"no_success", "hidden_exit_code"}.intersection(row.get("errors", ()))
    if "needs_bash" in row.get("warnings", ()) or "-lc" in str(row["command"]):
        return  # dash fails at it; a login shell has a PATH of its own
    code = ended_with(row, place, trained=0)
    assert code == 0 or refused
    assert code != 0 or "no_success" not in refused


def ended_with(row, place, trained):
    command = row["command"]
    shell = "dash" if row["measured"] == "dash" else "/bin/sh"
    argv = [shell, "-c", command] if isinstance(command, str) else command
    with subprocess.Popen(
        argv,
        cwd=place,
        env={"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "TRAINED": str(trained)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as shell_process:
        try:
            return shell_process.wait(60)
        finally:
            # Some rows leave a loop in the background, which would run on for ever.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell_process.pid, signal.SIGKILL)


def test_many_rows_are_measured():
    assert len(MEASURED) >= 100
