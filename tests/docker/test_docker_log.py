"""Every line once and in order, over killed agents, a killed engine and rotations of its log."""

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentd.core.frames import PLATFORM
from agentd.core.log_window import Line
from agentd.runtime.docker.plan import container_name
from tests.docker.engine import docker, engine_down, engine_socket, engine_up
from tests.docker.hosts import docker_host
from tests.log_lines import read_log
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
LINES = 100_000

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(300)]

# An agent that only holds the runtime: it is killed at any moment, and the next one adopts.
AGENT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agentd.runtime.docker.plan import Owner
from agentd.runtime.docker.runtime import DockerRuntime

async def main():
    root = Path(sys.argv[2])
    await DockerRuntime(root / "tasks", root / "lease", Owner("tests", sys.argv[3]), sys.argv[4]).open()
    print("open", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
# Bursts of 5000 lines of some 400 bytes, 40 MB in all: the engine's files of 32 MB are rotated on the way.
TALK = (
    "pad=$(printf %0400d 0); n=0; while [ $n -lt 100000 ]; do "
    "e=$((n+5000)); while [ $n -lt $e ]; do echo line $n $pad; n=$((n+1)); done; sleep 0.2; done"
)


def restart_engine(container: str) -> None:
    """While nothing is on its way: what the engine has read and not yet written is lost with it, whoever follows.

    Without the stop 2 of 30 runs here lost 5 and 38 lines: the engine's own files lacked the same lines, and no other.
    """
    first = int(docker("inspect", "--format", "{{.State.Pid}}", container))
    # 0 where the program has ended: then nothing is on its way either.
    talking = [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())] if first else []
    for pid in talking:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    engine_down()
    engine_up()
    for pid in talking:
        with contextlib.suppress(ProcessLookupError):  # a `sleep` that had ended
            os.kill(pid, signal.SIGCONT)


async def test_a_hundred_thousand_lines_over_ten_killed_agents_and_two_engine_restarts() -> None:
    async with docker_host() as host:
        await host.start(TALK)
        await host.until("running")
        await host.runtime.close()
        chance = random.Random(7)
        words = [sys.executable, "-c", AGENT, str(ROOT), str(host.root), host.owner.node, engine_socket()]
        for number in range(10):
            with subprocess.Popen(words, stdout=subprocess.PIPE) as agent:
                assert agent.stdout is not None
                agent.stdout.readline()
                await asyncio.sleep(chance.uniform(0.0, 0.3))
                agent.kill()
            if number in (3, 6):
                await asyncio.to_thread(restart_engine, f"hf-{host.group}-1-0")
        host.runtime = host.made()
        await host.runtime.open()
        seen = await host.until("exited", within_s=200)
        assert (seen.exit_code, seen.why) == (0, "exited")
        numbers = [int(re.match(r"line (\d+) 0{400}$", line)[1]) for line in host.lines()]
        assert numbers == list(range(LINES))
        log_files = docker("inspect", "--format", "{{.LogPath}}", f"hf-{host.group}-1-0")
        assert Path(log_files + ".1").exists(), "the engine's log was never rotated: the test shows nothing"


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_output_that_outruns_its_reader_is_counted_and_said_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentd.runtime.docker.plan.LOG_FILE_BYTES", 20_000)
    talk = "i=$((n+2000)); while [ $n -lt $i ]; do echo line $n; n=$((n+1)); done; "
    wait = "while [ ! -e /tmp/go-on ]; do sleep 0.05; done; "
    async with docker_host() as host:
        spec = await host.start(f"n=0; echo line 0; n=1; {wait} {talk} echo pause; while :; do sleep 0.1; done")
        await host.says("line 0")
        name = container_name(spec)
        with frozen(host.shim_pid()):
            docker("exec", name, "touch", "/tmp/go-on")

            async def written() -> bool:
                return "pause" in docker("logs", "--tail", "1", name)

            await eventually("all written", written)
        await host.says("pause")

        async def seen() -> int:
            return (await host.seen()).log_lost

        await eventually("the loss is seen while the task runs", seen)
        lines = [item for item in read_log(str(host.directory() / "log"), over=False) if isinstance(item, Line)]
        (at,) = (at for at, line in enumerate(lines) if line.stream == PLATFORM)
        first, last = int(lines[at - 1].text.split()[1]), int(lines[at + 1].text.split()[1])
        numbers = [line.text for line in lines if line.stream != PLATFORM]
        assert numbers == [*(f"line {n}" for n in (*range(first + 1), *range(last, 2001))), "pause"]
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
        said = re.match(rf"at least (\d+) bytes lost to rotation between {stamp} and {stamp}: ", lines[at].text)
        assert said is not None, lines[at].text
        lost = int(said[1])
        # As the engine wrote the missing ones; every file that is gone was full to within one record.
        frame = len('{"log":"line 1000\\n","stream":"stdout","time":"2026-11-29T15:48:00.123456789Z"}\n')
        missing = sum(frame - 4 + len(str(n)) for n in range(first + 1, last))
        assert lost <= missing <= 1.02 * lost
        assert (await host.seen()).log_lost == lost
        await host.runtime.kill(spec.id)
        assert (await host.until("exited")).log_lost == lost


async def test_a_log_that_somebody_cut_on_the_host_goes_on_and_says_so() -> None:
    talk = "n=0; while :; do echo line $n; n=$((n+1)); sleep 0.2; done"
    async with docker_host() as host:
        spec = await host.start(talk)
        await host.says("line 20")
        path = docker("inspect", "--format", "{{.LogPath}}", container_name(spec))

        async def marked() -> bool:
            return any("cut from outside" in line for line in host.lines())

        os.truncate(path, 0)
        await eventually("the cut is said", marked)
        lines = host.lines()
        at = next(at for at, line in enumerate(lines) if "cut from outside" in line)
        before, after = ([int(line.split()[1]) for line in part] for part in (lines[:at], lines[at + 1 :]))
        assert before == list(range(len(before)))
        await host.says(f"line {before[-1] + 50}")
        numbers = [int(line.split()[1]) for line in host.lines() if line.startswith("line ")]
        # What was written just before the cut may be gone; nothing of it comes twice, and nothing else is missing.
        behind = numbers[len(before) :]
        assert behind == list(range(behind[0], behind[0] + len(behind)))
        assert behind[0] > before[-1]
        assert after == behind[: len(after)]


async def test_each_attempt_has_a_log_of_its_own_from_its_first_line_to_its_last() -> None:
    async with docker_host() as host:
        first = await host.start("echo hello A; exit 1")
        assert (await host.until("exited")).exit_code == 1
        await host.runtime.remove(first.id)
        second = await host.start_as(host.spec("echo hello B"), id=replace(first.id, attempt=2))
        assert (await host.until("exited")).id == second.id
        for spec, said in ((first, "hello A"), (second, "hello B")):
            items = read_log(host.runtime.log_dir(spec.id), over=True)
            assert [item.text for item in items if isinstance(item, Line)] == [said]


async def test_a_reader_s_offset_stays_good_over_an_engine_restart() -> None:
    async with docker_host() as host:
        await host.start("for n in 1 2 3; do echo $n; done; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo 4")
        await host.says("3")
        log = str(host.directory() / "log")
        offset = next(item.offset for item in read_log(log, over=False) if isinstance(item, Line) and item.text == "2")
        await asyncio.to_thread(engine_down)
        await asyncio.to_thread(engine_up)
        await host.restart()

        async def answered() -> bool:
            return await host.runtime.engine.ping()

        await eventually("the engine is back", answered)
        docker("exec", f"hf-{host.group}-1-0", "touch", "/tmp/go")
        assert (await host.until("exited")).exit_code == 0
        rest = [item.text for item in read_log(log, over=True, offset=offset) if isinstance(item, Line)]
        assert rest == ["3", "4"]


@pytest.mark.parametrize("away", [True, False])
async def test_output_that_ends_with_its_program_while_the_engine_is_down_is_said_to_be_missing(away: bool) -> None:
    """The engine keeps nothing of it; where the engine comes back before the end, nothing is missing or said to be."""
    async with docker_host() as host:
        spec = await host.start("echo up; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo the last word")
        await host.says("up")
        go = Path(f"/proc/{docker('inspect', '--format', '{{.State.Pid}}', container_name(spec))}/root/tmp/go")
        await asyncio.to_thread(engine_down)
        if not away:
            await asyncio.to_thread(engine_up)
        go.touch()

        async def two_lines() -> bool:
            return len(host.lines()) > 1

        await eventually("its last line, or ours", two_lines)
        await asyncio.to_thread(engine_up)
        assert (await host.until("exited")).exit_code == 0
        items = [item for item in read_log(str(host.directory() / "log"), over=True) if isinstance(item, Line)]
        said = [item.text.partition(":")[0] for item in items]
        assert said == ["up", "output before the end may be missing" if away else "the last word"]
        assert (items[-1].stream == PLATFORM) == away
