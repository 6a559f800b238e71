"""What only the process runtime has to survive: its agent, its shims and the host dying at any moment."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentd.core.log_window import Line
from agentd.runtime.base import Observed, TaskId, TaskSpec
from agentd.runtime.process import ProcessRuntime
from agentd.runtime.task_dir import task_path, write_spec
from tests.integration.host_family import KINDS, ROOT, Family, Task, state
from tests.log_lines import read_log
from tests.waiting import eventually

WAIT_S = 20.0
ID = TaskId("group-a", 1, 0)
LOOP = "echo up; while :; do sleep 0.05; done"


class Agent:
    """The runtime of an agent on the family's host; a new one is an agent that was restarted."""

    def __init__(self, family: Family, kind: str = KINDS[0]) -> None:
        self.family = family
        self.runtime = ProcessRuntime(family.tasks, family.root / "lease", (kind,))

    async def start(self, shell: str) -> Task:
        spec = TaskSpec(ID, 7, shell=shell, env={"PATH": os.environ["PATH"]}, cwd=str(self.family.root))
        await self.runtime.start(spec)
        return Task(self.family, task_path(self.family.tasks, ID))

    async def reach(self, what: str) -> Observed:
        await eventually(f"the task to be {what}", lambda: self._is(what))
        return (await self.runtime.list())[0]

    async def _is(self, what: str) -> bool:
        return [seen.state for seen in await self.runtime.list()] == [what]


async def until_said(task: Task, text: str) -> None:
    async def said() -> bool:
        return text in task.lines()

    await eventually(lambda: f"{text!r} in {task.lines()}", said)


@pytest.fixture
async def family() -> AsyncIterator[Family]:
    made = Family()
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_whose_shim_was_killed_is_lost_and_all_of_it_is_gone(family: Family, kind: str) -> None:
    agent = Agent(family, kind)
    await agent.runtime.open()
    task = await agent.start("trap '' TERM; setsid sleep 300 & echo up; while :; do sleep 0.05; done")
    await until_said(task, "up")
    os.kill(task.record()["shim_pid"], signal.SIGKILL)
    seen = await agent.reach("exited")
    assert (seen.why, seen.exit_code, seen.signal) == ("lost", None, None)
    assert task.processes() == []
    await agent.runtime.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_while_no_agent_was_there_to_see(family: Family, kind: str) -> None:
    agent = Agent(family, kind)
    await agent.runtime.open()
    task = await agent.start(LOOP)
    await until_said(task, "up")
    await agent.runtime.close()
    os.kill(task.record()["shim_pid"], signal.SIGKILL)
    after = Agent(family, kind)
    await after.runtime.open()
    assert (await after.reach("exited")).why == "lost"
    assert task.processes() == []
    await after.runtime.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_whose_directory_was_removed_is_lost_and_all_of_it_is_gone(family: Family, kind: str) -> None:
    agent = Agent(family, kind)
    await agent.runtime.open()
    task = await agent.start("trap '' TERM; setsid sleep 300 & echo up; while :; do sleep 0.05; done")
    await until_said(task, "up")
    shutil.rmtree(task.directory)
    assert (await agent.reach("exited")).why == "lost"
    assert task.processes() == []
    await agent.runtime.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["", "spec.json"])
async def test_what_an_agent_finds_without_its_files_is_ended_before_it_says_what_runs(
    family: Family, kind: str, name: str
) -> None:
    """The shim is frozen, so that nobody but the new agent can do it; a task beside it goes on."""
    agent = Agent(family, kind)
    await agent.runtime.open()
    task = await agent.start(LOOP)
    await until_said(task, "up")
    beside = family.task(LOOP, name="group-b/1/0", isolation=[kind])
    beside.start()
    beside.says("up")
    await agent.runtime.close()
    shim = task.record()["shim_pid"]
    os.kill(shim, signal.SIGSTOP)
    if name:
        (task.directory / name).unlink()
    else:
        shutil.rmtree(task.directory)
    after = Agent(family, kind)
    await after.runtime.open()
    assert task.processes() == []
    assert [(seen.id.group_id, seen.state) for seen in await after.runtime.list()] == [("group-b", "running")]
    assert beside.processes() != []
    await after.runtime.close()
    os.kill(shim, signal.SIGCONT)

    async def left() -> bool:
        return state(shim) in ("", "Z")

    await eventually("the shim to end", left)


async def test_a_frozen_shim_cannot_hold_up_a_stop(family: Family) -> None:
    agent = Agent(family)
    await agent.runtime.open()
    task = await agent.start(LOOP)
    await until_said(task, "up")
    os.kill(task.record()["shim_pid"], signal.SIGSTOP)
    await agent.runtime.stop(ID, 0.1, "user")
    seen = await agent.reach("exited")
    assert seen.why == "stopped"
    assert task.processes() == []
    assert state(task.record()["shim_pid"]) in ("", "Z")
    await agent.runtime.close()


async def test_an_agent_killed_between_the_order_and_the_start_leaves_an_end_and_a_late_shim_starts_nothing(
    family: Family,
) -> None:
    path = task_path(family.tasks, ID)
    spec = TaskSpec(ID, 7, shell="touch started", env={}, cwd=str(family.root))
    write_spec(path, spec, family.root / "lease", ("subreaper",))
    agent = Agent(family)
    await agent.runtime.open()
    seen = await agent.reach("exited")
    assert (seen.why, seen.token) == ("lost", 7)
    assert Task(family, path).start().wait(WAIT_S) == 3
    assert not (family.root / "started").exists()
    await agent.runtime.close()


async def test_a_shim_that_is_just_starting_is_adopted(family: Family) -> None:
    path = task_path(family.tasks, ID)
    write_spec(path, TaskSpec(ID, 7, shell=LOOP, env={"PATH": os.environ["PATH"]}), family.root / "lease", ())
    shim = Task(family, path).start()

    async def locked() -> bool:
        """By the kernel's list: to try the lock could make the shim find it taken."""
        lock = path / "shim.lock"
        return lock.exists() and f":{lock.stat().st_ino} " in Path("/proc/locks").read_text()

    await eventually("the shim to take its lock", locked)
    agent = Agent(family)
    await agent.runtime.open()
    seen = await agent.reach("running")
    assert seen.token == 7
    await agent.runtime.stop(ID, 1, "user")
    assert (await agent.reach("exited")).why == "stopped"
    assert shim.wait(WAIT_S) == 0
    await agent.runtime.close()


@pytest.mark.attack(22)
async def test_after_a_restart_of_the_host_everything_is_lost_and_no_stranger_is_touched(family: Family) -> None:
    agent = Agent(family)
    await agent.runtime.open()
    task = await agent.start("exit 0")
    await agent.reach("exited")
    await agent.runtime.close()
    (task.directory / "exit.json").unlink()
    stranger = family.run(["sleep", "300"])
    with open(f"/proc/{stranger.pid}/stat") as file:
        start = int(file.read().rpartition(")")[2].split()[19])
    record = {**task.record(), "boot_id": "0" * 36, "ns": "pidns"}
    for name in ("pid", "shim_pid"):
        record[name] = stranger.pid
    record["start"] = record["shim_start"] = start
    (task.directory / "pid.json").write_text(json.dumps(record))
    after = Agent(family)
    await after.runtime.open()
    assert (await after.reach("exited")).why == "lost"
    assert stranger.poll() is None
    await after.runtime.close()


async def test_a_reused_pid_is_not_adopted(family: Family) -> None:
    agent = Agent(family)
    await agent.runtime.open()
    task = await agent.start("exit 0")
    await agent.reach("exited")
    await agent.runtime.close()
    (task.directory / "exit.json").unlink()
    stranger = family.run(["sleep", "300"])
    (task.directory / "pid.json").write_text(
        json.dumps({**task.record(), "pid": stranger.pid, "shim_pid": stranger.pid})
    )
    after = Agent(family)
    await after.runtime.open()
    assert (await after.reach("exited")).why == "lost"
    assert stranger.poll() is None
    await after.runtime.close()


@pytest.mark.parametrize("text", ["", "{", "{}", "null"])
async def test_a_damaged_file_of_one_task_does_not_take_the_others_along(family: Family, text: str) -> None:
    agent = Agent(family)
    await agent.runtime.open()
    await agent.start(LOOP)
    await agent.reach("running")
    await agent.runtime.close()
    broken = family.tasks / "group-b" / "1" / "0"
    broken.mkdir(parents=True)
    for name in ("spec.json", "pid.json", "stop.json"):
        (broken / name).write_text(text)
    (family.tasks / "group-c").write_text("a file where a directory belongs")
    after = Agent(family)
    await after.runtime.open()

    async def settled() -> bool:
        return [seen.state for seen in await after.runtime.list()] == ["running", "exited"]

    await eventually("the broken task to be exited, the other running", settled)
    await after.runtime.kill(ID)
    await eventually("the agent after it to end", lambda: _ended(after))
    await after.runtime.close()


async def _ended(agent: Agent) -> bool:
    return all(seen.state == "exited" for seen in await agent.runtime.list())


AGENT = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agentd.runtime.base import TaskId, TaskSpec
from agentd.runtime.process import ProcessRuntime

async def main():
    root = Path(sys.argv[2])
    runtime = ProcessRuntime(root / "tasks", root / "lease")
    await runtime.open()
    spec = TaskSpec(TaskId("group-a", 1, 0), 7, shell=sys.argv[3], env={"PATH": os.environ["PATH"]})
    await runtime.start(spec)
    await asyncio.sleep(300)

asyncio.run(main())
"""


async def test_no_line_is_lost_over_agents_killed_in_the_middle_of_the_output(family: Family) -> None:
    """Agents are killed at random points while the task prints; each successor follows on by offset."""
    script = family.root / "talk.py"
    script.write_text("import time\nfor n in range(3000):\n    print(n, flush=True)\n    time.sleep(0.0003)\n")
    task = Task(family, task_path(family.tasks, ID))
    lines: list[str] = []
    offset = 0
    for _ in range(6):
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(ROOT), str(family.root), f"exec python3 {script}"], start_new_session=True
        )
        killed_at = time.monotonic() + 0.25
        while time.monotonic() < killed_at or not lines:
            assert agent.poll() is None
            for item in read_log(str(task.directory / "log"), over=False, offset=offset):
                assert isinstance(item, Line)
                lines.append(item.text)
                offset = item.offset
            await asyncio.sleep(0.02)
        agent.kill()
        agent.wait()
    end = await asyncio.to_thread(task.wait_end)
    assert (end["exit_code"], end["why"]) == (0, "exited")
    for item in read_log(str(task.directory / "log"), over=True, offset=offset):
        assert isinstance(item, Line)
        lines.append(item.text)
    assert lines == [str(number) for number in range(3000)]


async def test_starts_and_ends_leave_nothing_open(family: Family) -> None:
    agent = Agent(family)
    await agent.runtime.open()
    before = len(os.listdir("/proc/self/fd"))
    for rank in range(8):
        spec = TaskSpec(TaskId("group-a", 1, rank), 7, shell="exit 0", env={"PATH": os.environ["PATH"]})
        await agent.runtime.start(spec)
    await eventually("the agent to end", lambda: _ended(agent))

    async def closed() -> bool:
        return len(os.listdir("/proc/self/fd")) == before

    await eventually(lambda: f"{before} open files, not " + str(len(os.listdir("/proc/self/fd"))), closed)
    await agent.runtime.close()


async def test_a_task_removed_at_once_when_its_end_is_seen_stays_removed(family: Family) -> None:
    agent = Agent(family)
    await agent.runtime.open()
    for rank in range(20):
        task_id = TaskId("group-a", 1, rank)
        spec = TaskSpec(task_id, 7, shell="exit 0", env={"PATH": os.environ["PATH"]})
        await agent.runtime.start(spec)
        await eventually("the agent to end", lambda: _ended(agent))
        await agent.runtime.remove(task_id)
    await agent.runtime.close()
    after = Agent(family)
    await after.runtime.open()
    assert list(await after.runtime.list()) == []

    async def swept() -> bool:
        """Also where the first agent was not given the time."""
        paths = [task_path(family.tasks, TaskId("group-a", 1, rank)) for rank in range(20)]
        return all(os.listdir(path) == ["log"] for path in paths)

    await eventually("all but the logs to be removed", swept)
    await after.runtime.close()


def test_the_data_directory_s_modes_keep_others_out(family: Family) -> None:
    async def one() -> Path:
        agent = Agent(family)
        await agent.runtime.open()
        task = await agent.start("echo secret")
        await agent.reach("exited")
        await agent.runtime.close()
        return task.directory

    directory = asyncio.run(one())
    assert directory.stat().st_mode & 0o077 == 0
    for path in directory.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
