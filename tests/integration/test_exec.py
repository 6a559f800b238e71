"""`heteroflow exec` through a node that does not run the rank: the program, its terminal, its end, and who is told."""

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentd.lease_file import LeaseWriter, boottime_ns, read_boot_id
from agentd.runtime.base import TaskId, TaskSpec
from agentd.runtime.exec_session import ExecEnd
from agentd.runtime.process import ProcessRuntime
from schemas.exec_frames import STDOUT, ExecRequest
from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.terminal.pty_console import ROOT, pty_console
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
LOOP = "cd /tmp && MARK_OF_TASK=1 && while :; do sleep 0.2; done"


class Mesh(RunningMesh):
    group_id = ""

    async def ran(
        self, *words: str, stdin: bytes = b"", rank: int = 1, node: int = 1
    ) -> "subprocess.CompletedProcess[bytes]":
        """Of node 1, while rank 1 runs on another."""
        return await asyncio.to_thread(
            subprocess.run, self.command(*words, rank=rank, node=node), input=stdin, capture_output=True, timeout=60,
            env=self.environment, cwd=ROOT,
        )  # fmt: skip

    def command(self, *words: str, rank: int = 1, node: int = 1) -> list[str]:
        head = [sys.executable, "-m", "console.cli.main", "exec", "--node", self.nodes[node - 1].api]
        return [*head, "--token-file", str(self.loopback.token_file), self.group_id, str(rank), *words]

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/", "LANG": "C.UTF-8"}

    async def sessions(self) -> list[dict[str, Any]]:
        """What the timeline says of them."""
        answer = await self.nodes[0].call("GET", f"/task-groups/{self.group_id}/fault-events")
        return [event for event in answer.value["events"] if event["kind"].startswith("exec_")]

    async def far_node(self) -> int:
        """A node that does not run rank 1."""
        tasks = (await self.group(self.group_id))["tasks"]
        home = next(task["node_id"] for task in tasks if task["rank"] == 1)
        return next(node.number for node in self.nodes if node.name != home)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exec")


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    running = Mesh(tmp_path / "mesh", n=2, voters=1)
    async with running:
        document = shell_group("exec", running.directory, LOOP)
        document["task"]["env"] = {"OF_THE_TASK": "yes", "DB_PASSWORD": "s3cr3t-of-the-db"}
        running.group_id = await running.submit(document)
        await running.status(running.group_id, "running")
        yield running


async def test_programs_on_pipes(mesh: Mesh) -> None:
    far = await mesh.far_node()
    shown = await mesh.ran("--", "sh", "-c", "echo $NODE_RANK $OF_THE_TASK; id -u; echo bad >&2; exit 7", node=far)
    assert (shown.returncode, shown.stdout.decode().split()) == (7, ["1", "yes", str(os.getuid())])
    assert shown.stderr == b"bad\n"
    # The walls are the task's: its process table, not the host's.
    table = await mesh.ran("--", "sh", "-c", "ls /proc | grep -c '^[0-9]*$'", node=far)
    if os.geteuid() == 0:
        assert int(table.stdout) < 12, table
    sent = os.urandom(1 << 20)
    echoed = await mesh.ran("--", "sha256sum", stdin=sent, node=far)
    assert echoed.stdout.split()[0].decode() == hashlib.sha256(sent).hexdigest()
    back = await mesh.ran("--", "cat", stdin=sent, node=far)
    assert back.stdout == sent
    killed = await mesh.ran("--", "sh", "-c", "kill -9 $$", node=far)
    assert killed.returncode == 137
    missing = await mesh.ran("--", "no-such-program", node=far)
    assert missing.returncode == 127
    assert b"no-such-program" in missing.stderr
    # What it leaves in the background does not hold the session.
    left = await mesh.ran("--", "sh", "-c", "sleep 300 & echo done", node=far)
    assert left.stdout == b"done\n"

    async def told() -> list[dict[str, Any]] | None:
        events = await mesh.sessions()
        return events if len(events) >= 14 else None

    events = await eventually("all sessions on the timeline", told)
    assert {event["rank"] for event in events} == {1}
    assert events[0]["text"].startswith("mesh opened a session on rank 1: sh -c ")
    assert any("exit code 7" in event["text"] for event in events)


async def test_a_terminal(mesh: Mesh) -> None:
    far = await mesh.far_node()
    target = (mesh.nodes[far - 1].api, mesh.loopback.token_file)
    with pty_console(*target, mesh.group_id, "1", verb="exec", size=(90, 33)) as shell:
        shell.press("PS1='<'ready'> '\n")
        shell.until("<ready> ")

        def line(words: str, said: str) -> None:
            before = len(shell.sent)
            shell.press(f"{words}\n")
            shell.until(said, before)
            shell.until("<ready> ", before)

        line("stty size", "33 90")
        assert not shell.is_cooked()
        # The keys go to the program, which goes on.
        shell.press("echo g$((0))o; sleep 300\n")
        shell.until("g0o")
        before = len(shell.sent)
        shell.press("\x03")
        shell.until("<ready> ", before)
        line("echo st$((1))ll", "st1ll")
        shell.resize(70, 21)
        line("stty size", "21 70")
        shell.press("exit 9\n")
        assert shell.ended() == 9
        assert shell.is_cooked()
    # Ended from outside: the terminal is given back, and what ran there is gone.
    with pty_console(*target, "-t", mesh.group_id, "1", "--", "sleep", "4242", verb="exec") as held:
        await eventually("the program", lambda: _found("sleep 4242"))
        held.process.send_signal(signal.SIGTERM)
        assert held.ended() == 128 + signal.SIGTERM
        assert held.is_cooked()
    await eventually("no program", lambda: _found("sleep 4242", wanted=False))


async def test_a_client_that_is_killed_and_a_rank_that_ends(mesh: Mesh) -> None:
    far = await mesh.far_node()
    command = mesh.command("--", "sh", "-c", "trap '' TERM; echo up; sleep 5252", node=far)
    home = next(node for node in mesh.nodes if node.number != far)
    for end in ("client", "agent", "rank"):
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=mesh.environment,
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n"
        if end == "client":
            process.kill()
        elif end == "agent":
            home.kill_agent()
        else:
            await mesh.nodes[0].call("POST", f"/task-groups/{mesh.group_id}/stop")
        async with asyncio.timeout(30):
            await process.communicate()
        if end != "client":
            assert process.returncode in (4, 5, 137)
        await eventually("no program", lambda: _found("sleep 5252", wanted=False))
        if end == "agent":
            await eventually("sessions on the agent that came back", lambda: _again(mesh, far))
    await mesh.status(mesh.group_id, "stopped")
    refused = await mesh.ran("--", "true", node=far)
    assert refused.returncode == 5
    assert b"beside a running rank only" in refused.stderr
    assert b"rank 1" in refused.stderr


async def test_what_is_refused(mesh: Mesh) -> None:
    assert (await mesh.ran("--", "true", rank=9)).returncode == 3
    url = f"http://{mesh.nodes[0].api}/api/v1/task-groups/{mesh.group_id}/exec"
    headers = {"Authorization": f"Bearer {mesh.token}"}
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}?rank=1") as response:
            assert response.status == 401
        async with session.get(f"{url}?rank=1", headers=headers) as response:
            assert (response.status, (await response.json())["code"]) == (426, "websocket_wanted")
        for first in ("[]", "x", '{"argv": "ls"}', '{"argv": ["a\\u0000b"]}', '{"tty": true, "rows": 0}', '{"x": 1}'):
            async with session.ws_connect(f"{url}?rank=1", headers=headers) as socket:
                await socket.send_str(first)
                answer = await socket.receive_json()
                assert answer["problem"]["code"] == "invalid_exec", first
        # More sessions than a rank may have; and all of them end when their clients go.
        async with contextlib.AsyncExitStack() as stack:
            for number in range(9):
                socket = await stack.enter_async_context(session.ws_connect(f"{url}?rank=1", headers=headers))
                await socket.send_json({"argv": ["sleep", "6262"]})
                answer = await socket.receive_json()
                assert ("started" in answer) == (number < 8), (number, answer)
            assert answer["problem"]["code"] == "too_many_sessions"
    await eventually("no program", lambda: _found("sleep 6262", wanted=False))


async def _again(mesh: Mesh, far: int) -> bool:
    return (await mesh.ran("--", "true", node=far)).returncode == 0


class Host:
    """A process runtime in this process, with one running task."""

    def __init__(self, directory: Path, isolation: str) -> None:
        (directory / "tasks").mkdir()
        self._lease = LeaseWriter(str(directory / "lease"), read_boot_id())
        self._lease.extend(boottime_ns() + 600 * 1_000_000_000)
        self.runtime = ProcessRuntime(directory / "tasks", directory / "lease", (isolation, "subreaper"))
        self.id = TaskId("tg-a", 1, 0)

    async def __aenter__(self) -> "Host":
        await self.runtime.open()
        env = {"PATH": os.environ["PATH"], "OF_THE_TASK": "yes"}
        await self.runtime.start(TaskSpec(self.id, 7, shell="while :; do sleep 0.1; done", env=env, cwd="/tmp"))
        await eventually("the task", lambda: self._is("running"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runtime.kill(self.id)
        await eventually("its end", lambda: self._is("exited"))
        await self.runtime.close()
        self._lease.close()

    async def _is(self, state: str) -> bool:
        return (await self.runtime.list())[0].state == state

    async def ran(self, *words: str) -> tuple[bytes, ExecEnd]:
        session = await self.runtime.exec(self.id, ExecRequest(words))
        said = b""
        while (chunk := await session.read()) is not None:
            said += chunk[1]
        try:
            return said, await session.ended()
        finally:
            await session.close()


@pytest.mark.parametrize("isolation", ["pidns", "userns", "subreaper"])
async def test_a_program_is_where_the_task_is_however_that_is_held_together(tmp_path: Path, isolation: str) -> None:
    async with Host(tmp_path, isolation) as host:
        said, end = await host.ran("sh", "-c", "echo $OF_THE_TASK; id -u; pwd; exit 5")
        assert (said.decode().split(), end) == (["yes", str(os.getuid()), "/tmp"], ExecEnd(exit_code=5))
        session = await host.runtime.exec(host.id, ExecRequest(("sh", "-c", "echo on; sleep 8383")))
        assert await session.read() == (STDOUT, b"on\n")
        await host.runtime.kill(host.id)
        async with asyncio.timeout(20):
            while await session.read() is not None:
                pass
            assert await session.ended() == ExecEnd(signal=9)
        await session.close()
    assert await _found("sleep 8383", wanted=False)


async def test_a_client_that_stalls_stalls_the_program_and_fills_no_memory(tmp_path: Path) -> None:
    size = 60_000_000
    async with Host(tmp_path, "subreaper") as host:
        before = _resident_kb()
        session = await host.runtime.exec(host.id, ExecRequest(("sh", "-c", f"yes | head -c {size}; echo end >&2")))
        first = await session.read()
        assert first is not None
        # More than a pipe holds was written, or is waited for: it does not end, and nothing of it comes here.
        await asyncio.sleep(0.3)
        assert _resident_kb() - before < 20_000
        got, errors = len(first[1]), b""
        while (chunk := await session.read()) is not None:
            got, errors = got + (len(chunk[1]) if chunk[0] == STDOUT else 0), errors + chunk[1] * (chunk[0] != STDOUT)
        assert (got, errors) == (size, b"end\n")
        assert await session.ended() == ExecEnd(exit_code=0)
        await session.close()
        assert _resident_kb() - before < 20_000


def _resident_kb() -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS:"))
    return int(line.split()[1])


async def _found(command: str, wanted: bool = True) -> bool:
    def look() -> bool:
        done = subprocess.run(["pgrep", "-f", f"^{command}"], capture_output=True)
        return (done.returncode == 0) == wanted

    return await asyncio.to_thread(look)
