"""The guard with real processes: it keeps the agent running and fences what the agent can no longer stop."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.host_family import BREATHE, KINDS, Family, Task, now_s, state
from tests.waiting import until

pytestmark = pytest.mark.slow
KILL_S = 4.5
STUBBORN = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; {BREATHE}' & echo up; {BREATHE}"

# An agent that starts the shims of all tasks, each in a session of its own, says so, and then does as told.
AGENT = """
import json, os, pathlib, signal, subprocess, sys, time
root, shim, then = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
for spec in root.glob("tasks/*/*/*/spec.json"):
    if not (spec.parent / "pid.json").exists():
        subprocess.Popen([*shim, str(spec.parent)], start_new_session=True)
with open(root / "agents", "a") as file:
    file.write(f"{os.getpid()}\\n")
if then.startswith("exit"):
    sys.exit(int(then[4:]))
time.sleep(300)
"""


def agent(family: Family, then: str = "wait") -> list[str]:
    return [family.python, "-c", AGENT, str(family.root), json.dumps(family.shim), then]


def agents(family: Family) -> list[int]:
    path = family.root / "agents"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def an_agent(family: Family, count: int = 1) -> int:
    return until("an agent", lambda: len(agents(family)) >= count and agents(family))[-1]


def gone(task: Task) -> bool:
    return not task.processes()


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family()
    yield made
    made.close()


def all_gone(tasks: Sequence[Task]) -> None:
    until("nothing of the tasks is alive", lambda: all(gone(task) for task in tasks))


def fenced_in_time(family: Family, tasks: Sequence[Task]) -> None:
    """They live until the deadline, and nothing of any past the time that the lease allows for."""
    deadline = family.silence()
    all_gone(tasks)
    assert 0 < family.last_breath() - deadline < KILL_S


@pytest.mark.parametrize("frozen", [False, True], ids=["agent killed", "agent frozen"])
def test_a_dead_or_frozen_agent_cannot_keep_a_task_past_its_lease(frozen: bool) -> None:
    family = Family(lease_s=2.0)
    try:
        tasks = family.each_kind(STUBBORN)
        guard = family.guard(agent(family))
        for task in tasks:
            task.says("up")
        os.kill(an_agent(family), signal.SIGSTOP if frozen else signal.SIGKILL)
        fenced_in_time(family, tasks)
        assert [task.wait_end()["why"] for task in tasks] == ["fenced"] * len(KINDS)
        if not frozen:
            assert guard.wait(20) == 128 + signal.SIGKILL
    finally:
        family.close()


def test_the_guard_fences_without_the_shims() -> None:
    """Frozen ones, and a killed one whose task no namespace took along."""
    family = Family(lease_s=2.0)
    try:
        frozen = family.each_kind(STUBBORN)
        orphan = family.task(STUBBORN, "group-o/1/0", isolation=["subreaper"])
        family.guard(agent(family))
        for task in (*frozen, orphan):
            task.says("up")
        for task in frozen:
            os.kill(task.record()["shim_pid"], signal.SIGSTOP)
        os.kill(orphan.record()["shim_pid"], signal.SIGKILL)
        fenced_in_time(family, [*frozen, orphan])
        for task in frozen:
            os.kill(task.record()["shim_pid"], signal.SIGCONT)
            assert task.wait_end()["why"] == "fenced"
    finally:
        family.close()


def test_a_frozen_shim_s_program_is_asked_before_it_is_killed() -> None:
    family = Family(lease_s=2.0)
    try:
        task = family.task(f"trap 'echo asked > {family.root}/asked' TERM; echo up; while :; do sleep 0.1; done")
        family.guard(agent(family))
        task.says("up")
        os.kill(task.record()["shim_pid"], signal.SIGSTOP)
        family.silence()
        until("the program was asked", (family.root / "asked").exists)
        assert not gone(task)
        until("nothing of the task is alive", lambda: gone(task))
    finally:
        family.close()


def test_a_guard_that_comes_back_late_acts_on_the_deadline_first() -> None:
    family = Family(lease_s=2.0)
    try:
        tasks = family.each_kind(STUBBORN)
        for task in tasks:
            task.start()
        for task in tasks:
            task.says("up")
            os.kill(task.record()["shim_pid"], signal.SIGSTOP)
        deadline = family.silence()
        until("the kill is overdue", lambda: now_s() > deadline + 4.2)
        assert not any(gone(task) for task in tasks)
        began = time.monotonic()
        family.guard(["sleep", "300"])
        all_gone(tasks)
        assert time.monotonic() - began < 2
    finally:
        family.close()


def test_a_missing_lease_file_is_a_fence_without_grace(family: Family) -> None:
    task = family.task(STUBBORN)
    family.guard(agent(family))
    task.says("up")
    (family.root / "lease").unlink()
    began = time.monotonic()
    until("nothing of the task is alive", lambda: gone(task))
    assert time.monotonic() - began < 3
    assert task.wait_end()["why"] == "fenced"


def test_keep_is_left_alone_and_so_is_a_stranger_with_a_recorded_pid() -> None:
    family = Family(lease_s=2.0)
    try:
        kept = family.task("echo up; sleep 300", name="group-k/1/0", on_isolation="keep")
        fenced = family.task("echo up; sleep 300", name="group-s/1/0")
        stranger = family.run(["sleep", "300"])
        family.guard(agent(family))
        kept.says("up")
        fenced.says("up")
        # As after the pid of an ended task was given to somebody else.
        record = fenced.record()
        old = family.tasks / "group-o/1/0"
        old.mkdir(parents=True)
        (old / "pid.json").write_text(json.dumps({**record, "pid": stranger.pid, "shim_pid": stranger.pid}))
        family.silence()
        until("the task is fenced", lambda: gone(fenced))
        time.sleep(0.5)
        assert stranger.poll() is None
        assert not gone(kept)
    finally:
        family.close()


def test_fencing_switched_off_leaves_the_task() -> None:
    family = Family(lease_s=2.0)
    try:
        task = family.task("echo up; sleep 300")
        guard = family.guard(agent(family), HETEROFLOW_TEST_FENCE="off")
        task.says("up")
        os.kill(an_agent(family), signal.SIGKILL)
        guard.wait(20)
        deadline = family.silence()
        until("the kill would be over", lambda: now_s() > deadline + KILL_S)
        assert not gone(task)
    finally:
        family.close()


def test_the_agent_is_restarted_and_its_tasks_run_on(family: Family) -> None:
    task = family.task("echo up; while :; do sleep 0.1; done")
    guard = family.guard(agent(family), restart="always")
    task.says("up")
    before = task.processes()
    for count in (1, 2):
        os.kill(an_agent(family, count), signal.SIGKILL)
        an_agent(family, count + 1)
    assert set(before) & set(task.processes())
    guard.terminate()
    assert guard.wait(20) == 128 + signal.SIGTERM
    assert not gone(task)
    assert state(agents(family)[-1]) in ("", "Z")


@pytest.mark.parametrize(("code", "tries"), [(0, 1), (2, 1), (5, 1), (3, 3), (4, 3)])
def test_an_agent_that_cannot_run_is_not_started_for_ever_and_its_code_is_told(
    family: Family, code: int, tries: int
) -> None:
    guard = family.guard(agent(family, f"exit{code}"), restart="always")
    assert guard.wait(20) == code
    assert len(agents(family)) == tries


def test_the_agent_dies_with_its_guard_and_the_next_guard_takes_over(family: Family) -> None:
    task = family.task("echo up; while :; do sleep 0.1; done")
    guard = family.guard(agent(family))
    task.says("up")
    first = an_agent(family)
    guard.kill()
    until("the agent is gone", lambda: state(first) in ("", "Z"))
    assert not gone(task)
    family.guard(agent(family))
    an_agent(family, 2)
    assert not gone(task)


def test_a_second_guard_is_refused_by_the_name_of_the_first(family: Family) -> None:
    first = family.guard(["sleep", "300"])
    until("the guard has its lock", lambda: str(first.pid) in _text(family.root / "guard.lock"))
    second = family.run_guard("--data-dir", str(family.root), "--", "sleep", "300", stderr=subprocess.PIPE)
    assert second.wait(20) == 3
    assert str(first.pid) in _rest_of(second)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["--data-dir", "D"],
        ["--data-dir", "D", "--"],
        ["--restart", "never", "--", "x"],
        ["--data-dir", "D", "--restart", "maybe", "--", "x"],
        ["--data-dir", "D", "--what", "x", "--", "x"],
    ],
)
def test_bad_usage_is_told(family: Family, words: list[str]) -> None:
    guard = family.run_guard(*words, stderr=subprocess.PIPE)
    assert guard.wait(20) == 2
    assert "usage" in _rest_of(guard)


def test_the_guard_is_small_and_idle(family: Family) -> None:
    guard = family.guard(agent(family))
    an_agent(family)
    before = _cpu_s(guard.pid)
    time.sleep(3)
    assert _cpu_s(guard.pid) - before <= 0.03
    rss_kb = int(
        next(
            line for line in Path(f"/proc/{guard.pid}/status").read_text().splitlines() if line.startswith("VmRSS")
        ).split()[1]
    )
    assert rss_kb <= 15 * 1024


def test_orphans_are_reaped(family: Family) -> None:
    guard = family.guard(["sh", "-c", "for i in 1 2 3 4 5; do setsid sh -c 'sleep 0.2 &' & done; exec sleep 300"])
    until("the agent runs", lambda: _children(guard.pid))
    time.sleep(1)
    assert [pid for pid in _children(guard.pid) if state(pid) == "Z"] == []


def test_a_plain_user_is_fenced_too() -> None:
    family = Family(lease_s=2.0, plain=True)
    try:
        task = family.task(STUBBORN)
        family.guard(agent(family))
        task.says("up")
        os.kill(an_agent(family), signal.SIGKILL)
        fenced_in_time(family, [task])
        assert task.wait_end()["why"] == "fenced"
    finally:
        family.close()


def test_a_whole_host_killed_at_once_leaves_nothing_running() -> None:
    """All of it together, as a drill does; what no namespace took along the next guard ends."""
    family = Family(lease_s=2.0)
    try:
        tasks = family.each_kind(STUBBORN)
        guard = family.guard(agent(family))
        for task in tasks:
            task.says("up")
        for pid in (guard.pid, an_agent(family), *(task.record()["shim_pid"] for task in tasks)):
            os.kill(pid, signal.SIGKILL)
        family.silence()
        family.guard(["sleep", "300"])
        all_gone(tasks)
    finally:
        family.close()


def _rest_of(child: "subprocess.Popen[bytes]") -> str:
    assert child.stderr is not None
    with child.stderr:
        return child.stderr.read().decode()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid:
                found.append(int(name))
    return found
