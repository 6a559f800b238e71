"""The shim with real processes: what it starts ends as one, what it prints is kept, how it ended is told truly."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentd.core.log_window import Line
from tests.integration.host_family import IS_ROOT, KINDS, ROOT, Family, name_of, now_s, state
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family()
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    ("shell", "code", "number", "why"),
    [
        ("exit 0", 0, None, "exited"),
        ("exit 7", 7, None, "exited"),
        ("exit 137", 137, None, "exited"),
        ("kill -9 $$", None, signal.SIGKILL, "killed"),
        ("kill -SEGV $$", None, signal.SIGSEGV, "killed"),
    ],
)
def test_how_a_task_ended_is_told_truly(
    family: Family, kind: str, shell: str, code: int | None, number: int | None, why: str
) -> None:
    task = family.task(shell, isolation=[kind])
    assert task.start().wait(20) == 0
    end = task.wait_end()
    assert (end["exit_code"], end["signal"], end["why"]) == (code, number, why)
    assert task.record()["ns"] == kind


def test_nothing_a_task_started_outlives_it(family: Family, kind: str) -> None:
    task = family.task(
        "setsid sleep 300 & (setsid sh -c 'sleep 300 & sleep 300' &) ; (trap '' TERM; sleep 300) & sleep 0.3; exit 3",
        isolation=[kind],
    )
    task.start()
    end = task.wait_end()
    assert (end["exit_code"], end["why"]) == (3, "exited")
    assert task.processes() == []


def test_a_stop_reaches_the_worker_through_its_shell_and_what_follows_may_save(family: Family, kind: str) -> None:
    (family.root / "worker.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('up')\n"
        "time.sleep(60)\n"
    )
    task = family.task("python3 worker.py && echo after-a; echo after-b", isolation=[kind], cwd=str(family.root))
    task.start()
    task.says("up")
    task.stop(10)
    end = task.wait_end()
    assert task.lines() == ["up", "saved", "after-a", "after-b"]
    assert (end["exit_code"], end["signal"], end["why"]) == (0, None, "stopped")


def test_a_worker_whose_output_goes_through_a_pipe_keeps_its_reader_while_it_saves(family: Family, kind: str) -> None:
    (family.root / "worker.py").write_text(
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.3)\n"
        "    for n in range(3): print('saving', n, flush=True)\n"
        "    open('saved', 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(15, save)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    task = family.task("python3 worker.py 2>&1 | tee copy | cat", isolation=[kind], cwd=str(family.root))
    task.start()
    task.says("up")
    task.stop(10)
    task.wait_end()
    assert task.lines() == ["up", "saving 0", "saving 1", "saving 2"]
    assert (family.root / "saved").exists()


def test_a_shell_that_traps_the_signal_gets_it_and_so_does_its_child(family: Family, kind: str) -> None:
    task = family.task("trap 'echo trapped; exit 5' TERM; echo up; sleep 60; echo not-here", isolation=[kind])
    task.start()
    until("the child runs", lambda: "sleep" in [name_of(pid) for pid in task.processes()])
    task.stop(10)
    end = task.wait_end()
    assert [line for line in task.lines() if line != "Terminated"] == ["up", "trapped"]
    assert (end["exit_code"], end["why"]) == (5, "stopped")


def test_a_child_that_was_still_its_shell_when_the_stop_came_is_asked_as_what_it_became(family: Family) -> None:
    task = family.task(
        "trap 'echo trapped; exit 5' TERM; echo up; sh -c 'trap : TERM; sleep 5; exec sleep 60'; echo not-here"
    )
    task.start()
    task.says("up")
    until("the inner shell runs", lambda: len(task.processes()) >= 3)
    task.stop(30)
    assert task.wait_end(10)["exit_code"] == 5


def test_who_ignores_the_stop_is_killed_when_the_grace_is_over(family: Family, kind: str) -> None:
    task = family.task("trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 300' & echo up; sleep 300", isolation=[kind])
    task.start()
    task.says("up")
    began = time.monotonic()
    task.stop(0.5)
    end = task.wait_end()
    assert 0.4 < time.monotonic() - began < 10
    assert (end["signal"], end["why"]) == (signal.SIGKILL, "stopped")
    assert end["error"].endswith(": killed, as it had not ended when its grace of 0.5 s was over")
    assert task.processes() == []


def test_a_second_stop_may_hurry_but_not_delay(family: Family) -> None:
    task = family.task("trap '' TERM; echo up; while :; do sleep 0.1; done")
    task.start()
    task.says("up")
    task.stop(60)
    task.stop(0.3)
    task.wait_end(10)


def test_a_stop_before_the_start_means_that_nothing_starts(family: Family) -> None:
    task = family.task("touch started; echo up", cwd=str(family.root))
    (task.directory / "stop.json").write_text(json.dumps({"at_ns": 1, "grace_s": 5, "why": "user"}))
    task.start()
    assert task.wait_end()["why"] == "stopped"
    assert not (family.root / "started").exists()


def test_the_signal_alone_is_a_stop_with_the_grace_of_the_task(family: Family) -> None:
    task = family.task("echo up; exec sleep 60")
    task.start()
    task.says("up")
    os.kill(task.record()["shim_pid"], signal.SIGTERM)
    end = task.wait_end()
    assert (end["signal"], end["why"]) == (signal.SIGTERM, "stopped")


@pytest.mark.skipif(not IS_ROOT, reason="PID 1 of a namespace made by root")
def test_a_signal_to_the_first_process_reaches_the_program(family: Family) -> None:
    task = family.task("trap 'echo usr1' USR1; trap 'echo term; exit 4' TERM; echo up; while :; do sleep 0.05; done")
    task.start()
    task.says("up")
    os.kill(task.record()["pid"], signal.SIGUSR1)
    task.says("usr1")
    os.kill(task.record()["pid"], signal.SIGTERM)
    assert task.wait_end()["exit_code"] == 4


def test_a_program_that_cannot_be_started_says_so(family: Family, kind: str) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"argv": ["/no/such/program"]}, "program /no/such/program: No such file"),
        ({"cwd": "/no/such/place"}, "working directory /no/such/place: No such file"),
        ({"argv": ["/etc/passwd"]}, "program /etc/passwd: Permission denied"),
    ]
    for number, (changes, words) in enumerate(cases):
        shell = "" if "argv" in changes else "true"
        task = family.task(shell, f"group-a/1/{number}", isolation=[kind], **changes)
        task.start()
        end = task.wait_end()
        assert (end["why"], end["exit_code"], end["signal"]) == ("start_failed", None, None)
        assert words in end["error"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"argv": []}', '{"shell": "true"}'])
def test_a_damaged_order_is_an_end_with_a_reason(family: Family, text: str) -> None:
    task = family.task("true")
    (task.directory / "spec.json").write_text(text)
    task.start()
    end = task.wait_end()
    assert end["why"] == "lost", "not the program's own fault"
    assert "this host could not start it" in end["error"] and "spec.json" in end["error"]


def test_what_the_host_has_no_room_for_is_not_the_programs_fault(family: Family) -> None:
    task = family.task("true")
    log = task.directory / "log"
    log.write_text("no directory, so no log can be opened in it")
    task.start()
    end = task.wait_end()
    assert (end["why"], end["exit_code"]) == ("lost", None) and "this host could not start it" in end["error"]


def test_a_task_is_started_once_also_by_two_shims_at_once_and_never_again(family: Family) -> None:
    task = family.task("echo up >> count; sleep 0.3", cwd=str(family.root))
    codes = sorted(shim.wait(20) for shim in [task.start() for _ in range(5)])
    assert codes == [0, 3, 3, 3, 3]
    assert task.start().wait(20) == 3
    assert (family.root / "count").read_text() == "up\n"


def test_without_a_lease_nothing_starts(family: Family) -> None:
    (family.root / "lease").unlink()
    task = family.task("touch started", cwd=str(family.root))
    task.start()
    end = task.wait_end()
    assert end["why"] == "fenced"
    assert "no readable lease" in end["error"]
    assert not (family.root / "started").exists()


def test_keep_runs_without_a_lease(family: Family) -> None:
    (family.root / "lease").unlink()
    task = family.task("exit 6", on_isolation="keep")
    task.start()
    assert task.wait_end()["exit_code"] == 6


def test_the_shim_fences_alone_asks_first_and_kills_four_seconds_after_the_deadline() -> None:
    family = Family(lease_s=2.0)
    try:
        tasks = family.each_kind("trap 'echo asked' TERM; echo up; while :; do sleep 0.1; done")
        for task in tasks:
            task.start()
        for task in tasks:
            task.says("up")
        deadline = family.silence()
        for task in tasks:
            task.says("asked")
        assert now_s() > deadline
        for task in tasks:
            end = task.wait_end()
            assert 3.9 < now_s() - deadline < 5
            assert (end["why"], end["signal"]) == ("fenced", signal.SIGKILL)
            assert task.processes() == []
    finally:
        family.close()


def test_a_lease_that_is_renewed_is_no_fence_and_a_fence_is_not_taken_back() -> None:
    family = Family(lease_s=2.0)
    try:
        task = family.task("trap 'echo asked' TERM; echo up; while :; do sleep 0.1; done")
        task.start()
        task.says("up")
        first_deadline = now_s() + 2.0
        until("the first lease is long over", lambda: now_s() > first_deadline + 0.5)
        assert task.lines() == ["up"]
        family.silence()
        task.says("asked")
        family.grant(60)
        assert task.wait_end()["why"] == "fenced"
    finally:
        family.close()


def test_fencing_switched_off_for_a_drill_is_off() -> None:
    family = Family(lease_s=0.3)
    try:
        task = family.task("echo up; sleep 1.5; echo survived")
        family.silence()
        task.start(HETEROFLOW_TEST_FENCE="off")
        assert task.wait_end()["why"] == "exited"
        assert task.lines() == ["up", "survived"]
    finally:
        family.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "subreaper"])
def test_a_killed_shim_takes_its_task_along(family: Family, kind: str) -> None:
    task = family.task("setsid sleep 300 & echo up; sleep 300", isolation=[kind])
    task.start()
    task.says("up")
    os.kill(task.record()["shim_pid"], signal.SIGKILL)
    until("nothing of the task is alive", lambda: not task.processes() and state(task.record()["pid"]) in ("", "Z"))
    assert task.end() is None


def test_all_that_was_printed_is_in_the_log_in_order_and_nobody_waits_for_who_holds_the_pipe(
    family: Family, kind: str
) -> None:
    (family.root / "talk.py").write_text(
        "import os\nfor n in range(20000): os.write(1 + n % 2, b'line %d\\n' % n)\nos.write(1, b'x' * 300000)\n"
    )
    task = family.task("sleep 300 & exec python3 talk.py", isolation=[kind], cwd=str(family.root))
    task.start()
    task.wait_end()
    lines = [item for item in task.items() if isinstance(item, Line)]
    for stream in (1, 2):
        numbers = [line.text for line in lines if line.stream == stream and line.text.startswith("line")]
        assert numbers == [f"line {number}" for number in range(20000) if 1 + number % 2 == stream]
    assert lines[-1].text == "x" * 300000
    assert lines[-1].end == ""


def test_reading_while_it_is_written_gives_the_same_lines(family: Family) -> None:
    task = family.task(
        "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done", log={"max_bytes": 4096, "files": 10_000}
    )
    task.start()
    seen = 0
    while not task.end():
        lines = task.lines()
        assert lines == [str(number) for number in range(len(lines))]
        seen = max(seen, len(lines))
    assert task.lines() == [str(number) for number in range(3000)]


@pytest.mark.attack(41)
def test_a_full_disk_costs_output_never_the_task_and_not_its_end() -> None:
    if not IS_ROOT:
        pytest.skip("mounts a small file system")
    family = Family()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(family.tasks)], check=True)
    try:
        task = family.task(
            "yes 1234567890 | head -c 3000000; echo; rm -f filler; echo last; exit 3",
            cwd=str(family.tasks),
            log={"max_bytes": 1 << 30, "files": 4},
        )
        (family.tasks / "filler").write_bytes(b"f" * 300_000)
        task.start()
        end = task.wait_end()
        assert (end["exit_code"], end["why"]) == (3, "exited")
        said = [item.text for item in task.items() if isinstance(item, Line) and item.stream == 0]
        assert end["log_lost"] > 2_000_000
        # A small part of the disk is the mesh's: the task meets that before the disk's own end.
        assert "51 KiB of the disk are kept" in said[-1] or "No space left on device" in said[-1], said
        assert task.lines()[-1] == "last"
    finally:
        family.close()
        subprocess.run(["umount", str(family.tasks)], check=False)
        shutil.rmtree(family.root, ignore_errors=True)


def test_a_shim_whose_directory_was_removed_ends_with_its_task(family: Family, kind: str) -> None:
    task = family.task("echo on; sleep 1", isolation=[kind], cwd="/")
    shim = task.start()
    task.says("on")
    shutil.rmtree(task.directory)
    assert shim.wait(20) == 0


@pytest.mark.parametrize("name", ["", "spec.json", "pid.json"])
def test_a_task_that_nobody_could_find_any_more_is_ended(family: Family, kind: str, name: str) -> None:
    """The agent takes it for ended and the mesh starts another attempt, which must not find this one alive."""
    task = family.task("trap '' TERM; setsid sleep 300 & echo on; while :; do sleep 0.05; done", isolation=[kind])
    shim = task.start()
    task.says("on")
    if name:
        (task.directory / name).unlink()
    else:
        shutil.rmtree(task.directory)
    assert shim.wait(20) == 0
    assert task.processes() == []
    if name == "pid.json":
        assert (task.end() or {})["why"] == "lost" and "pid.json" in task.end()["error"]


def test_the_environment_is_the_spec_and_no_more(family: Family) -> None:
    value = "a b'c\"d $(touch pwn) `id`\nline two = é"
    task = family.task("", argv=["/usr/bin/env", "-0"], env={"HP": value, "EMPTY": ""})
    task.start(AGENT_SECRET="hidden")
    task.wait_end()
    pairs = dict(pair.partition("=")[::2] for pair in "\n".join(task.lines()).split("\0") if pair)
    assert pairs == {"HP": value, "EMPTY": "", "HETEROFLOW_TASK_DIR": str(task.directory)}


@pytest.mark.parametrize("isolation", [["pidns", "userns", "subreaper"], ["subreaper"]])
def test_a_plain_user_needs_no_rights(isolation: list[str]) -> None:
    family = Family(plain=True)
    try:
        task = family.task("setsid sleep 300 & id -u; trap '' TERM; sleep 300", isolation=isolation)
        task.start()
        task.says("65534")
        assert task.record()["ns"] == ("subreaper" if isolation == ["subreaper"] else "userns")
        (task.directory / "stop.json").write_text(json.dumps({"at_ns": 1, "grace_s": 0, "why": "test"}))
        assert task.wait_end()["why"] == "stopped"
        assert task.processes() == []
    finally:
        family.close()


HALF_A_NAMESPACE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from agentd.shim import isolate
from agentd.shim.host import PR_SET_CHILD_SUBREAPER, prctl

def refuse(path, text):
    raise PermissionError(13, "Permission denied")

isolate._write = refuse
prctl(PR_SET_CHILD_SUBREAPER, 1)
held = isolate.hold(isolate.Program(["/bin/sh", "-c", "kill -TERM $$"], {}, "/", ["userns", "subreaper"]), ())
os.write(held.go_fd, b"g")
print(held.ns, os.WTERMSIG(os.waitpid(held.pid, 0)[1]))
"""


def test_a_host_that_gives_half_a_namespace_gets_a_program_that_is_no_pid_1() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HALF_A_NAMESPACE, str(ROOT)], capture_output=True, timeout=20, check=True
    )
    assert done.stdout == b"subreaper 15\n"


def test_a_program_finds_itself_in_proc(family: Family) -> None:
    task = family.task("", argv=["python3", "-c", "import os; print(open(f'/proc/{os.getpid()}/comm').read().strip())"])
    task.start()
    task.wait_end()
    assert task.lines() == ["python3"]
