"""The runtime of an agent on the test engine, restarted at will; everything it made is gone afterwards."""

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentd.lease_file import LeaseWriter, boottime_ns, read_boot_id
from agentd.runtime.base import ContainerOptions, Observed, TaskId, TaskSpec
from agentd.runtime.docker.plan import Owner
from agentd.runtime.docker.runtime import DockerRuntime
from agentd.runtime.task_dir import task_path
from agentd.shim.record import read_record
from tests.docker.engine import IMAGE, engine_socket
from tests.integration.host_family import state
from tests.log_lines import read_log, texts
from tests.waiting import WITHIN_S, eventually

LOOP = "echo up; while :; do sleep 0.1; done"


class DockerHost:
    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hf-docker-"))
        (self.root / "tasks").mkdir()
        self.lease = LeaseWriter(str(self.root / "lease"), read_boot_id())
        self.lease.extend(boottime_ns() + 900 * 1_000_000_000)
        self.group = f"tg-{secrets.token_hex(4)}"
        self.owner = Owner("tests", secrets.token_hex(4))
        self.runtime = self.made()

    def made(self, socket: str = "") -> DockerRuntime:
        return DockerRuntime(self.root / "tasks", self.root / "lease", self.owner, socket or engine_socket())

    def spec(self, shell: str, rank: int = 0, **options: Any) -> TaskSpec:
        container = ContainerOptions(**{"image": IMAGE, "pull": "never", **options})
        return TaskSpec(TaskId(self.group, 1, rank), 7, shell=shell, container=container)

    async def start(self, shell: str, **options: Any) -> TaskSpec:
        spec = self.spec(shell, **options)
        await self.runtime.start(spec)
        return spec

    async def start_as(self, spec: TaskSpec, **changes: Any) -> TaskSpec:
        changed = replace(spec, **changes)
        await self.runtime.start(changed)
        return changed

    async def restart(self) -> None:
        await self.runtime.close()
        self.runtime = self.made()
        await self.runtime.open()

    async def seen(self, rank: int = 0) -> Observed:
        return next(one for one in await self.runtime.list() if one.id.rank == rank)

    async def until(self, wanted: str, rank: int = 0, within_s: float = WITHIN_S) -> Observed:
        async def reached() -> Observed:
            seen = await self.seen(rank)
            assert seen.state == wanted, seen
            return seen

        found: Observed = await eventually(f"rank {rank} to be {wanted}", reached, within_s)
        return found

    async def says(self, text: str, rank: int = 0) -> None:
        async def said() -> bool:
            return text in self.lines(rank)

        await eventually(lambda: f"{text!r} in {self.lines(rank)[-20:]}", said)

    def directory(self, rank: int = 0) -> Path:
        return task_path(self.root / "tasks", TaskId(self.group, 1, rank))

    def lines(self, rank: int = 0) -> list[str]:
        over = (self.directory(rank) / "exit.json").exists()
        return texts(read_log(str(self.directory(rank) / "log"), over=over))

    def alive(self, rank: int = 0) -> bool:
        record = read_record(str(self.directory(rank)))
        return record is not None and record.pid > 0 and state(record.pid) not in ("", "Z", "X")

    def shim_pid(self, rank: int = 0) -> int:
        record = read_record(str(self.directory(rank)))
        assert record is not None
        return record.shim_pid

    async def close(self) -> None:
        for one in await self.runtime.list():
            await self.runtime.kill(one.id)
        for one in await self.runtime.list():
            await self.until("exited", one.id.rank)
        await self.runtime.close()
        with contextlib.suppress(FileNotFoundError):
            await self.made().discard_all()
        self.lease.close()
        shutil.rmtree(self.root, ignore_errors=True)


@contextlib.asynccontextmanager
async def docker_host() -> AsyncIterator[DockerHost]:
    host = DockerHost()
    await host.runtime.open()
    try:
        yield host
    finally:
        await host.close()
