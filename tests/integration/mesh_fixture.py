"""A real mesh on loopback for tests: guards, agents, voters and tasks as processes, to be killed, frozen and started
again."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from scripts.loopback_mesh import LoopbackMesh
from tests.waiting import eventually

T = TypeVar("T")
TERMINAL = ("completed", "failed", "stopped")


class Answer:
    def __init__(self, status: int, value: Any, headers: Any) -> None:
        self.status, self.value, self.headers = status, value, headers

    def __repr__(self) -> str:
        return f"{self.status} {self.value}"


class MeshNode:
    """One host of a mesh."""

    def __init__(self, mesh: "RunningMesh", number: int) -> None:
        self._mesh, self.number = mesh, number
        self.name = f"node-{number}"

    @property
    def api(self) -> str:
        return self._mesh.loopback.address(self.number)

    @property
    def data_dir(self) -> Path:
        return self._mesh.loopback.data_dir(self.number)

    @property
    def guard(self) -> subprocess.Popen[bytes]:
        return self._mesh.loopback.guards[self.number - 1]

    @property
    def agent_pid(self) -> int | None:
        """Of the agent that holds the data directory now."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.data_dir / "lock").read_text())
            if "agentd.cli" in _cmdline(pid):
                return pid
        return None

    @property
    def voter_pid(self) -> int | None:
        return next((pid for pid in self.family() if "mesh.voter" in _cmdline(pid)), None)

    def family(self) -> list[int]:
        """The guard and everything below it: agent, voter, shims, tasks."""
        if self.guard.poll() is not None:
            return []
        return [self.guard.pid, *descendants(self.guard.pid)]

    def command_lines(self) -> list[str]:
        return [_cmdline(pid) for pid in self.family()]

    def signal_agent(self, number: int) -> None:
        assert self.agent_pid is not None, f"{self.name} has no agent"
        os.kill(self.agent_pid, number)

    def kill_agent(self) -> None:
        self.signal_agent(signal.SIGKILL)

    def freeze_agent(self) -> None:
        self.signal_agent(signal.SIGSTOP)

    def thaw_agent(self) -> None:
        self.signal_agent(signal.SIGCONT)

    def kill_voter(self) -> None:
        self.signal_voter(signal.SIGKILL)

    def signal_voter(self, number: int) -> None:
        assert self.voter_pid is not None, f"{self.name} has no voter"
        os.kill(self.voter_pid, number)

    def kill_guard(self) -> None:
        self.guard.kill()
        self.guard.wait()

    def kill_host(self) -> None:
        """As if its power were cut: nothing of it does anything afterwards."""
        family = self.family()
        for pid in family:
            _send(pid, signal.SIGSTOP)
        for pid in {*family, *self.family()}:
            _send(pid, signal.SIGKILL)
        self.guard.wait()

    def start(self, *extra: str) -> None:
        self._mesh.start_guard(self.number, *extra)

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        return await self._mesh.call(self, method, path, body, **options)


class RunningMesh:
    """`async with RunningMesh(tmp_path, n=3) as mesh`, or `start` and `stop`. `guard_flags`: more flags for every
    guard, such as --restart never."""

    def __init__(
        self,
        directory: Path,
        n: int = 3,
        voters: int | None = None,
        gpus: str = "simulated:2xH100",
        profile: str = "fast",
        guard_flags: tuple[str, ...] = (),
        tls: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.loopback = LoopbackMesh(directory, n, voters or (n if n in (1, 3, 5) else 3), gpus, profile)
        self.loopback.tls = tls
        self.loopback.flags = guard_flags
        self.directory = directory
        self.nodes = [MeshNode(self, number) for number in range(1, n + 1)]

    def start(self) -> None:
        try:
            self.loopback.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for node in self.nodes[: len(self.loopback.guards)]:
            for pid in node.family():
                _send(pid, signal.SIGCONT)
        self.loopback.stop()

    async def __aenter__(self) -> "RunningMesh":
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def token(self) -> str:
        return self.loopback.token_file.read_text().strip()

    def start_guard(self, number: int, *extra: str) -> None:
        command = [*self.loopback._command(number), *extra]
        with (self.directory / f"node-{number}.out").open("ab") as output:
            self.loopback.guards[number - 1] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def session(self, timeout: aiohttp.ClientTimeout, trusts: Path | None = None) -> aiohttp.ClientSession:
        """A person's: trusts this mesh's CA, or the one in that file."""
        ca_file = trusts or self.loopback.ca_file
        context = ssl.create_default_context(cafile=ca_file) if ca_file is not None else True
        return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=context))

    def url(self, node: MeshNode, path: str) -> str:
        return f"{'https' if self.loopback.tls else 'http'}://{node.api}{path}"

    async def call(self, node: MeshNode, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        headers = {"Authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        timeout = aiohttp.ClientTimeout(total=options.pop("timeout_s", 20.0))
        url = self.url(node, f"/api/v1{path}")
        async with (
            self.session(timeout) as session,
            session.request(method, url, json=body, headers=headers, **options) as response,
        ):
            return Answer(response.status, await response.json(), response.headers)

    async def submit(self, document: dict[str, Any], node: int = 1, key: str | None = None) -> str:
        headers = {"Idempotency-Key": key} if key else {}
        answer = await self.nodes[node - 1].call("POST", "/task-groups", document, headers=headers)
        assert answer.status in (200, 201), answer
        return str(answer.value["group_id"])

    async def group(self, group_id: str, node: int = 1) -> dict[str, Any]:
        answer = await self.nodes[node - 1].call("GET", f"/task-groups/{group_id}")
        assert answer.status == 200, answer
        value: dict[str, Any] = answer.value
        return value

    async def status(self, group_id: str, *wanted: str, node: int = 1, within_s: float = 30.0) -> dict[str, Any]:
        """The group once it has one of these statuses."""
        seen: list[str] = []

        async def reached() -> dict[str, Any] | None:
            group = await self.group(group_id, node)
            if not seen or seen[-1] != group["status"]:
                seen.append(group["status"])
            return group if group["status"] in wanted else None

        return await eventually(lambda: f"{group_id} to be {wanted}; it was {seen}", reached, within_s)

    async def leader(self, node: int = 1) -> MeshNode:
        async def known() -> MeshNode | None:
            answer = await self.nodes[node - 1].call("GET", "/mesh")
            if answer.status != 200:
                return None
            mesh = answer.value
            leads = [v["node"] for v in mesh["consensus"]["voters"] if v["raft_id"] == mesh["consensus"]["leader"]]
            return next((n for n in self.nodes if n.name in leads), None)

        return await eventually("a leader", known)

    async def log_lines(self, group_id: str, node: int = 1, **params: Any) -> AsyncIterator[dict[str, Any]]:
        """The NDJSON objects of the logs route, heartbeats included."""
        query = {name: str(value).lower() for name, value in params.items()}
        url = self.url(self.nodes[node - 1], f"/api/v1/task-groups/{group_id}/logs")
        headers = {"Authorization": f"Bearer {self.token}"}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=30.0)
        async with (
            self.session(timeout) as session,
            session.get(url, params=query, headers=headers) as response,
        ):
            assert response.status == 200, await response.text()
            async for raw in response.content:
                yield json.loads(raw)

    async def lines(self, group_id: str, node: int = 1, **params: Any) -> list[dict[str, Any]]:
        return [line async for line in self.log_lines(group_id, node, **params) if "text" in line]

    def said(self, number: int = 1) -> str:
        return self.loopback.last_words(number)


def shell_group(name: str, directory: Path, command: str, n_nodes: int = 2, **training: Any) -> dict[str, Any]:
    """A training group of one card a node that runs a shell line."""
    return {
        "name": name,
        "task_type": "training",
        "training": {
            "framework": "ddp",
            "n_nodes": n_nodes,
            "per_node_gpu": 1,
            "checkpoint_path": str(directory / "checkpoints" / name),
            **training,
        },
        "task": {"command": command, "gpu_required": 1, "stop_grace_s": 3},
    }


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                yield int(entry.name), int((entry / "stat").read_text().rpartition(") ")[2].split()[1])


def _cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
