"""The contract of runtimes, kept alike by `process` on real processes, by `docker` on a real engine and by `memory`."""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from agentd.lease_file import LeaseWriter, boottime_ns, read_boot_id
from agentd.runtime.base import (
    ContainerOptions,
    ImageUnavailable,
    Observed,
    Runtime,
    RuntimeRefused,
    TaskId,
    TaskSpec,
)
from agentd.runtime.docker.plan import Owner
from agentd.runtime.docker.runtime import DockerRuntime
from agentd.runtime.exec_session import ExecEnd
from agentd.runtime.memory import Behaviour, MemoryRuntime
from agentd.runtime.process import ProcessRuntime
from schemas.exec_frames import STDOUT, ExecRequest
from tests.docker.engine import IMAGE, engine_socket
from tests.log_lines import read_log, texts
from tests.waiting import eventually

WAIT_S = 20.0
GPU = "SIM-1"


@dataclass(frozen=True)
class Program:
    """What a test wants a task to do, said once for both runtimes."""

    run_s: float | None = None
    exit_code: int = 0
    signal: int | None = None
    on_term: Literal["end", "ignore"] | int = "end"
    missing: bool = False
    output: str = ""

    def shell(self) -> str:
        trap = {"end": "", "ignore": "trap '' TERM;"}.get(str(self.on_term), f"trap 'exit {self.on_term}' TERM;")
        for_ever = "exec sleep 600" if self.on_term == "end" else "while :; do sleep 0.05; done"
        wait = for_ever if self.run_s is None else f"sleep {self.run_s}"
        end = f"exit {self.exit_code}" if self.signal is None else f"kill -{self.signal} $$"
        say = f"echo {self.output};" if self.output else ""
        return f"{trap} {say} echo ready; {wait}; {end}"

    def behaviour(self) -> Behaviour:
        return Behaviour(
            run_s=self.run_s,
            exit_code=self.exit_code,
            signal=self.signal,
            on_term=self.on_term,
            start_error="no such program" if self.missing else "",
            output=f"{self.output}\nready\n",
        )


class Host:
    """One host under test; `restart` is an agent that is killed and comes back."""

    cat: tuple[str, ...] = ("cat",)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs: dict[TaskId, Program] = {}
        self.runtime: Runtime

    async def open(self) -> None:
        raise NotImplementedError

    async def restart(self) -> None:
        raise NotImplementedError

    async def fence(self) -> None:
        raise NotImplementedError

    async def end(self) -> None:
        for seen in await self.runtime.list():
            await self.runtime.kill(seen.id)
        await eventually("all tasks to exit", self._all_exited)
        await self.runtime.close()

    async def _all_exited(self) -> bool:
        return all(seen.state == "exited" for seen in await self.runtime.list())

    def spec(self, program: Program, rank: int = 0, token: int = 7, attempt: int = 1) -> TaskSpec:
        task_id = TaskId("group-a", attempt, rank)
        self.programs[task_id] = program
        argv = ("/no/such/program",) if program.missing else ()
        shell = "" if program.missing else program.shell()
        environment = {"PATH": os.environ["PATH"]}
        return TaskSpec(task_id, token, argv=argv, shell=shell, env=environment, cwd="/tmp", gpus=(GPU,))

    async def seen(self, task_id: TaskId) -> Observed:
        return next(item for item in await self.runtime.list() if item.id == task_id)

    async def until(self, task_id: TaskId, state: str) -> Observed:
        async def reached() -> Observed:
            seen = await self.seen(task_id)
            assert seen.state == state, seen
            return seen

        found: Observed = await eventually(f"{task_id} to be {state}", reached)
        return found

    async def lines(self, task_id: TaskId) -> list[str]:
        return texts(read_log(self.runtime.log_dir(task_id), over=True))

    async def ready(self, task_id: TaskId) -> None:
        async def said() -> bool:
            return "ready" in await self.lines(task_id)

        await eventually(f"{task_id} to say that it is ready", said)


class ProcessHost(Host):
    async def open(self) -> None:
        (self.root / "tasks").mkdir(exist_ok=True)
        self.lease = LeaseWriter(str(self.root / "lease"), read_boot_id())
        self.lease.extend(boottime_ns() + 600 * 1_000_000_000)
        self.runtime = self.made()
        await self.runtime.open()

    def made(self) -> Runtime:
        return ProcessRuntime(self.root / "tasks", self.root / "lease")

    async def restart(self) -> None:
        await self.runtime.close()
        self.runtime = self.made()
        await self.runtime.open()

    async def fence(self) -> None:
        """The lease is gone; the shims see it within their second."""
        (self.root / "lease").unlink()

    async def end(self) -> None:
        await super().end()
        self.lease.close()


class MemoryHost(Host):
    async def open(self) -> None:
        self.memory = MemoryRuntime(lambda spec: self.programs[spec.id].behaviour(), self.root)
        self.runtime = self.memory
        await self.runtime.open()

    async def restart(self) -> None:
        await self.runtime.close()
        self.memory = MemoryRuntime(self.memory.script, self.root, self.memory.host)
        self.runtime = self.memory
        await self.runtime.open()

    async def fence(self) -> None:
        self.memory.fence()


class DockerHost(ProcessHost):
    """Programs run a little longer: how one ended that was over before its container was seen is known less well."""

    cat = ("busybox", "cat")

    async def open(self) -> None:
        self.owner = Owner("contract", secrets.token_hex(4))
        await super().open()

    def made(self) -> Runtime:
        return DockerRuntime(self.root / "tasks", self.root / "lease", self.owner, engine_socket())

    def spec(self, program: Program, rank: int = 0, token: int = 7, attempt: int = 1) -> TaskSpec:
        if program.run_s is not None:
            program = replace(program, run_s=program.run_s + 1.0)
        made = super().spec(program, rank, token, attempt)
        return replace(made, env={}, container=ContainerOptions(IMAGE, pull="never"))

    async def end(self) -> None:
        await super().end()
        await eventually("the containers to be removed", self._removed)

    async def _removed(self) -> bool:
        runtime = self.made()
        assert isinstance(runtime, DockerRuntime)
        await runtime.discard_all()
        return True


@pytest.fixture(
    params=[
        pytest.param(ProcessHost, id="process"),
        pytest.param(MemoryHost, id="memory"),
        pytest.param(DockerHost, id="docker", marks=pytest.mark.need("docker")),
    ]
)
async def host(request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    with tempfile.TemporaryDirectory(prefix="hf-runtime-") as root:
        made: Host = request.param(Path(root))
        await made.open()
        yield made
        await made.end()


@pytest.mark.parametrize(
    ("program", "code", "number", "why"),
    [
        (Program(run_s=0.05), 0, None, "exited"),
        (Program(run_s=0.05, exit_code=3), 3, None, "exited"),
        (Program(run_s=0.05, exit_code=137), 137, None, "exited"),
        (Program(run_s=0.05, signal=9), None, 9, "killed"),
        (Program(run_s=0.05, signal=11), None, 11, "killed"),
    ],
)
async def test_a_task_that_ends_by_itself(
    host: Host, program: Program, code: int | None, number: int | None, why: str
) -> None:
    spec = host.spec(program)
    started = await host.runtime.start(spec)
    assert (started.id, started.token, started.state) == (spec.id, 7, "starting")
    seen = await host.until(spec.id, "exited")
    assert (seen.exit_code, seen.signal, seen.why) == (code, number, why)
    assert seen.started_ms is not None
    assert seen.ended_ms is not None
    assert seen.ended_ms >= seen.started_ms
    assert seen.pid is None


async def test_a_running_task_has_a_pid_and_its_cards(host: Host) -> None:
    spec = host.spec(Program())
    await host.runtime.start(spec)
    seen = await host.until(spec.id, "running")
    assert seen.pid
    assert seen.gpus == (GPU,)
    assert (seen.exit_code, seen.signal, seen.why, seen.ended_ms, seen.stopping) == (None, None, "", None, False)


async def test_a_program_that_is_not_there_is_a_failed_start_with_its_reason(host: Host) -> None:
    spec = host.spec(Program(missing=True))
    await host.runtime.start(spec)
    seen = await host.until(spec.id, "exited")
    assert (seen.exit_code, seen.signal, seen.why) == (None, None, "start_failed")
    assert "no such" in seen.text.lower()


async def test_start_is_idempotent_alive_and_ended(host: Host) -> None:
    spec = host.spec(Program(run_s=0.1, exit_code=4))
    await asyncio.gather(*(host.runtime.start(spec) for _ in range(5)))
    ended = await host.until(spec.id, "exited")
    assert await host.runtime.start(spec) == ended
    assert await host.lines(spec.id) in (["ready"], ["", "ready"])


@pytest.mark.attack(22)
async def test_another_token_under_one_id_is_refused(host: Host) -> None:
    await host.runtime.start(host.spec(Program()))
    with pytest.raises(RuntimeRefused, match="bind 7, not 8"):
        await host.runtime.start(host.spec(Program(), token=8))


@pytest.mark.parametrize("changes", [{"shell": ""}, {"argv": ("true",)}])
async def test_a_program_is_given_in_exactly_one_way(host: Host, changes: dict[str, Any]) -> None:
    with pytest.raises(RuntimeRefused, match="exactly one"):
        await host.runtime.start(replace(host.spec(Program()), **changes))
    assert list(await host.runtime.list()) == []


@pytest.mark.parametrize(
    ("on_term", "code", "number"), [("end", None, 15), (9, 9, None), (0, 0, None)], ids=["dies", "saves", "saves well"]
)
async def test_a_stop_lets_the_program_end_in_its_own_way(
    host: Host, on_term: Literal["end"] | int, code: int | None, number: int | None
) -> None:
    spec = host.spec(Program(on_term=on_term))
    await host.runtime.start(spec)
    await host.ready(spec.id)
    await host.runtime.stop(spec.id, 15, "user")
    assert (await host.seen(spec.id)).stopping
    seen = await host.until(spec.id, "exited")
    assert (seen.exit_code, seen.signal, seen.why) == (code, number, "stopped")


async def test_a_stop_escalates_by_itself_and_a_second_one_may_hurry(host: Host) -> None:
    spec = host.spec(Program(on_term="ignore"))
    await host.runtime.start(spec)
    await host.ready(spec.id)
    await host.runtime.stop(spec.id, 300, "user")
    await host.runtime.stop(spec.id, 0.2, "user")
    await host.runtime.stop(spec.id, 300, "user")
    seen = await host.until(spec.id, "exited")
    assert (seen.signal, seen.why) == (9, "stopped")


async def test_kill_does_not_ask(host: Host) -> None:
    spec = host.spec(Program(on_term="ignore"))
    await host.runtime.start(spec)
    await host.ready(spec.id)
    await host.runtime.kill(spec.id)
    assert (await host.until(spec.id, "exited")).signal == 9


async def test_a_stop_at_once_after_the_start_ends_the_task(host: Host) -> None:
    specs = [host.spec(Program(), rank) for rank in range(6)]
    for spec in specs:
        await host.runtime.start(spec)
        await asyncio.sleep(0.01 * spec.id.rank)
        await host.runtime.stop(spec.id, 5, "user")
    for spec in specs:
        assert (await host.until(spec.id, "exited")).why == "stopped"


async def test_stops_kills_and_removals_of_what_is_not_there_do_nothing(host: Host) -> None:
    unknown = TaskId("group-x", 1, 0)
    await host.runtime.stop(unknown, 1, "user")
    await host.runtime.kill(unknown)
    await host.runtime.remove(unknown)
    spec = host.spec(Program(run_s=0.0))
    await host.runtime.start(spec)
    ended = await host.until(spec.id, "exited")
    await host.runtime.stop(spec.id, 1, "user")
    assert await host.seen(spec.id) == ended


async def test_removing_forgets_the_task_and_keeps_its_log_and_it_never_runs_again(host: Host) -> None:
    spec = host.spec(Program(run_s=0.0, output="kept"))
    await host.runtime.start(spec)
    await host.until(spec.id, "exited")
    await host.runtime.remove(spec.id)
    assert list(await host.runtime.list()) == []
    assert (await host.lines(spec.id))[0] == "kept"
    with pytest.raises(RuntimeRefused, match="started once"):
        await host.runtime.start(spec)


async def test_a_living_task_is_not_removed(host: Host) -> None:
    spec = host.spec(Program())
    await host.runtime.start(spec)
    await host.until(spec.id, "running")
    with pytest.raises(RuntimeRefused, match="not ended"):
        await host.runtime.remove(spec.id)


async def test_the_list_is_in_order_of_ids(host: Host) -> None:
    for rank in (10, 2, 0):
        await host.runtime.start(host.spec(Program(), rank))
    assert [seen.id.rank for seen in await host.runtime.list()] == [0, 2, 10]


async def test_changes_are_pushed_up_to_the_last_state(host: Host) -> None:
    changes = host.runtime.changes()
    spec = host.spec(Program(run_s=0.2, exit_code=5))
    await host.runtime.start(spec)
    states = []
    async with asyncio.timeout(WAIT_S):
        async for seen in changes:
            states.append(seen.state)
            if seen.state == "exited":
                break
    assert states == ["running", "exited"]


async def test_a_restarted_agent_finds_the_running_the_ended_and_the_stopping(host: Host) -> None:
    running, ending, stopping = (
        host.spec(program, rank)
        for rank, program in enumerate([Program(), Program(run_s=0.3, exit_code=6), Program(on_term="ignore")])
    )
    for spec in (running, ending, stopping):
        await host.runtime.start(spec)
        await host.ready(spec.id)
    before = await host.until(running.id, "running")
    await host.runtime.stop(stopping.id, 1.0, "user")
    await host.restart()
    assert await host.seen(running.id) == before
    assert (await host.seen(stopping.id)).stopping
    assert (await host.until(ending.id, "exited")).exit_code == 6
    assert (await host.until(stopping.id, "exited")).signal == 9
    assert (await host.runtime.start(running)).state == "running"
    await host.runtime.stop(running.id, 5, "user")
    assert (await host.until(running.id, "exited")).why == "stopped"


async def test_a_fenced_task_says_so(host: Host) -> None:
    spec, kept = host.spec(Program()), replace(host.spec(Program(), 1), on_isolation="keep")
    for one in (spec, kept):
        await host.runtime.start(one)
        await host.ready(one.id)
    await host.fence()
    assert (await host.until(spec.id, "exited")).why == "fenced"
    assert (await host.seen(kept.id)).state == "running"


async def test_many_at_once_end_each_in_its_own_way(host: Host) -> None:
    specs = [host.spec(Program(run_s=0.05, exit_code=rank), rank) for rank in range(8)]
    await asyncio.gather(*(host.runtime.start(spec) for spec in specs))
    codes = [(await host.until(spec.id, "exited")).exit_code for spec in specs]
    assert codes == list(range(8))


async def test_a_healthy_host_can_start_tasks_and_has_the_images_that_it_has(host: Host) -> None:
    assert host.runtime.trouble == ""
    said: list[str] = []
    getting = host.runtime.get_image(ContainerOptions(IMAGE, pull="never"), said.append)
    if host.runtime.name == "process":
        with pytest.raises(ImageUnavailable) as refused:
            await getting
        # Another node may be of another runtime.
        assert not refused.value.permanent
    else:
        await getting
    assert said == []


async def test_a_program_beside_a_running_task_hears_and_says(host: Host) -> None:
    seen = await host.runtime.start(host.spec(Program()))
    await host.until(seen.id, "running")
    await host.ready(seen.id)
    session = await host.runtime.exec(seen.id, ExecRequest(host.cat))
    try:
        sent = b"".join(bytes([n % 256]) * 1000 for n in range(200))
        got = b""

        async def hear() -> None:
            nonlocal got
            while (chunk := await session.read()) is not None:
                assert chunk[0] == STDOUT
                got += chunk[1]

        hearing = asyncio.create_task(hear())
        for at in range(0, len(sent), 10_000):
            await session.write(sent[at : at + 10_000])
        await session.write_eof()
        async with asyncio.timeout(WAIT_S):
            await hearing
        assert got == sent
        assert await session.ended() == ExecEnd(exit_code=0)
    finally:
        await session.close()
        await session.close()


async def test_nothing_is_run_beside_what_does_not_run(host: Host) -> None:
    with pytest.raises(RuntimeRefused):
        await host.runtime.exec(TaskId("group-z", 1, 0), ExecRequest())
    seen = await host.runtime.start(host.spec(Program(run_s=0.05)))
    await eventually("all tasks to exit", host._all_exited)
    with pytest.raises(RuntimeRefused):
        await host.runtime.exec(seen.id, ExecRequest())
