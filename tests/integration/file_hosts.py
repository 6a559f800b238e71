"""Agents with files of groups on their hosts, on an in-process mesh and runtime: their HTTP surface is the real one."""

import asyncio
import dataclasses
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient

from agentd.core.token_bucket import TokenBuckets
from agentd.data_dir import DataDir, Identity
from agentd.files.host_files import HostFiles
from agentd.files.service import FileService
from agentd.http.app import make_app
from agentd.http.context import Api
from agentd.http.rates import RATES
from agentd.join import JoinDesk
from agentd.runtime.memory import Behaviour
from mesh.memory import MemoryMesh
from schemas.commands import command
from schemas.task_group import accepted_task_group
from tests.integration.memory_hosts import MemoryHost, State
from tests.integration.served_api import AUTH, TOKEN, AgentServer


@dataclasses.dataclass(slots=True)
class Got:
    status: int
    body: bytes
    headers: Any

    def json(self) -> Any:
        return json.loads(self.body)


class FileHost:
    def __init__(
        self, host: MemoryHost, client: "TestClient[web.Request, web.Application]", files: FileService
    ) -> None:
        self.host, self.client, self.files = host, client, files

    async def ask(self, method: str, path: str, auth: dict[str, str] = AUTH, **options: Any) -> Got:
        headers = {**auth, **options.pop("headers", {})}
        async with self.client.request(method, path, headers=headers, **options) as response:
            return Got(response.status, await response.read(), response.headers)


class FileMesh:
    """hosts: n1, n2. group_id: a group of rank 0 on n1, with its checkpoint_path, a read-only dataset, a mount to write
    to and one that is a file; on_disk: those on the host, by their names in the task."""

    def __init__(self, mesh: MemoryMesh, state: State, hosts: list[FileHost], directory: Path) -> None:
        self.mesh, self.state, self.hosts, self.directory = mesh, state, hosts, directory
        self.group_id = ""
        self.on_disk: dict[str, Path] = {}

    @property
    def checkpoint(self) -> Path:
        return self.on_disk["/checkpoint"]

    def route(self, rest: str = "", group_id: str = "") -> str:
        return f"/api/v1/task-groups/{group_id or self.group_id}/files{rest}"

    async def names(self, host: int, target_path: str | None = None, **params: Any) -> Got:
        given = {**params, **({} if target_path is None else {"target_path": target_path})}
        return await self.hosts[host].ask("GET", self.route(), params=given)

    async def get(self, host: int, target_path: str, method: str = "GET", **headers: str) -> Got:
        asked = {name.replace("_", "-"): value for name, value in headers.items()}
        params = {"target_path": target_path}
        return await self.hosts[host].ask(method, self.route("/content"), params=params, headers=asked)

    async def put(self, host: int, target_path: str, body: Any, auth: dict[str, str] = AUTH, **params: Any) -> Got:
        given = {"target_path": target_path} | {name: str(value).lower() for name, value in params.items()}
        kind = {"Content-Type": "application/octet-stream"}
        body = io.BytesIO(body) if isinstance(body, bytes) else body
        return await self.hosts[host].ask("PUT", self.route("/content"), auth, params=given, data=body, headers=kind)

    async def audit(self) -> list[dict[str, Any]]:
        """Newest first, of files alone."""
        entries = (await self.hosts[0].ask("GET", "/api/v1/audit")).json()["entries"]
        return [entry for entry in entries if entry["what"] in ("RecordDownload", "RecordUpload")]

    async def start(self, group_id: str, tenant: str = "red") -> str:
        names = {"/checkpoint": "ckpt", "/dataset": "data", "/extra": "extra", "/file.txt": "file.txt"}
        self.on_disk = {target: self.directory / group_id / name for target, name in names.items()}
        for target, path in self.on_disk.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a file that is mounted\n") if target == "/file.txt" else path.mkdir()
        mounts = [
            {"source": str(self.on_disk["/extra"]), "target": "/extra", "read_only": False},
            {"source": str(self.on_disk["/file.txt"]), "target": "/file.txt", "read_only": False},
        ]
        training = {
            "framework": "ddp",
            "n_nodes": 1,
            "per_node_gpu": 1,
            "checkpoint_path": str(self.on_disk["/checkpoint"]),
            "dataset_path": str(self.on_disk["/dataset"]),
        }
        task = {"image": "team/pt:1", "command": ["train"], "gpu_required": 1, "mounts": mounts}
        document, _ = accepted_task_group(
            {"name": "files", "task_type": "training", "training": training, "task": task}, (f"{self.directory}/",)
        )
        fields = {"group_id": group_id, "document": document, "tenant": tenant, "user": "u", "warnings": []}
        outcome = await self.mesh.propose(command("SubmitGroup", **fields, resubmit_of=None))
        assert outcome["ok"], outcome
        return group_id

    async def run(self, group_id: str) -> None:
        await self.state.bind(group_id, ["n1"])
        await self.state.until(group_id, lambda _, tasks: all(task["status"] == "claimed" for task in tasks), 30)
        await self.state.start(group_id)
        await self.state.until(group_id, lambda group, _: group["status"] == "running", 30)


GROUP = f"tg-{7:020d}"


@asynccontextmanager
async def file_mesh(directory: Path) -> AsyncIterator[FileMesh]:
    mesh = MemoryMesh(node="n1")
    opened: list[Any] = []
    hosts: list[FileHost] = []
    # Its longest reason is said in the test, so a directory of its own may not be named as long as pytest likes.
    shares = directory / "s"
    shares.mkdir()
    async with aiohttp.ClientSession(headers=AUTH) as session:
        try:
            for name in ("n1", "n2"):
                host = await MemoryHost(mesh, name, directory, lambda _: Behaviour(output="hello\n")).start()
                data = DataDir.open(directory / name / "data")
                identity = Identity(
                    name, f"uid-{name}", cluster_id="c", epoch=1, profile="fast", role="founder", voters_wanted=1
                )
                api = Api(name, JoinDesk(data, identity, None), lambda: {"status": "ok"}, mesh)
                api.extra_allowed_paths = (f"{directory}/",)
                files = HostFiles((f"{shares}/",), [str(data.root)])
                api.files = FileService(name, files, session)
                app = make_app(api, TOKEN, "127.0.0.1")
                app[RATES].keys = TokenBuckets(1e6, 1e6)
                client = TestClient(AgentServer(app))
                await client.start_server()
                opened.append((host, data, client))
                hosts.append(FileHost(host, client, api.files))
                await _tell_address(mesh, host, f"127.0.0.1:{client.port}")
            found = FileMesh(mesh, State(mesh, directory), hosts, shares)
            found.group_id = await found.start(GROUP)
            await found.run(GROUP)
            yield found
        finally:
            await asyncio.gather(*(host.stop() for host, _, _ in opened))
            for _, data, client in opened:
                await client.close()
                data.close()


async def _tell_address(mesh: MemoryMesh, host: MemoryHost, address: str) -> None:
    outcome = await mesh.propose(
        command(
            "RegisterNode", node_id=host.node, uid=f"uid-{host.node}", api_addr=address, voter_addr=None,
            gpus=[{"uuid": c, "type": "H100", "memory_mb": 1, "index": i} for i, c in enumerate(host.cards)],
            gpu_backend="simulated", runtime="docker", labels={}, version="0", cpus=1, memory_mb=1,
        )
    )  # fmt: skip
    assert outcome["ok"], outcome
