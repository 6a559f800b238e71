"""Attacks on resources, against the real server on real sockets: hoarded connections, a flood of requests, hostile
HTTP, readers that stall, floods of output, and a disk that is nearly full."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.core.frames import OUT, PLATFORM
from agentd.core.log_window import Line
from agentd.core.token_bucket import TokenBuckets
from agentd.http.answer import json_bytes
from agentd.http.connections import Connections
from agentd.http.rates import RATES, STRANGER_BURST, STRANGER_PER_S
from agentd.http.runner import AgentRunner
from agentd.lease_file import LeaseWriter, boottime_ns, read_boot_id
from agentd.log_service import LogService, Place
from agentd.logs.reader import LogReader
from agentd.logs.writer import LogWriter, reserved_bytes
from agentd.runtime.base import Observed, TaskId
from agentd.shim.host import write_json
from tests.integration.served_api import AUTH
from tests.security.people import People, people
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[People]:
    async with people(tmp_path) as made:
        yield made


class Served:
    """The agent's own server with other bounds, on an application that answers at once."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    async def __aenter__(self) -> "Served":
        app = aiohttp.web.Application()
        app.router.add_get("/", self._answer)
        self._runner = AgentRunner(app, self.connections, shutdown_timeout=0.1)
        await self._runner.setup()
        site = aiohttp.web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address: tuple[str, int] = self._runner.addresses[0]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(text="here")

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)

    async def answers(self) -> bool:
        reader, writer = await self.connected()
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return b"here" in await reader.read()
        except ConnectionError:
            return False
        finally:
            writer.close()


# ATTACKS 37


@pytest.mark.attack(37)
async def test_who_says_nothing_or_only_half_of_a_request_is_sent_away() -> None:
    async with Served(Connections(first_request_s=0.3)) as server:
        silent = await server.connected()
        slow = await server.connected()
        slow[1].write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        for reader, writer in (silent, slow):
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(20):
                    assert await reader.read() == b""
            writer.close()
        await eventually(
            lambda: f"no connection, not {server.connections.count}", lambda: server.connections.count == 0
        )
        assert server.connections.refused == 2
        assert await server.answers()


@pytest.mark.attack(37)
async def test_hoarded_connections_drive_out_one_another_and_nobody_else() -> None:
    async with Served(Connections(waiting=20, first_request_s=60)) as server:
        hoard = [await server.connected() for _ in range(100)]
        assert await server.answers()
        await eventually(
            lambda: f"21 connections at most, not {server.connections.count}", lambda: server.connections.count <= 21
        )
        assert await server.answers()
        for _, writer in hoard:
            writer.close()
        await eventually(
            lambda: f"no connection, not {server.connections.count}", lambda: server.connections.count == 0
        )


@pytest.mark.attack(37)
async def test_connections_are_bounded_in_all_and_of_one_address() -> None:
    for bounds in ({"most": 5}, {"of_address": 5}):
        async with Served(Connections(**bounds)) as server:  # type: ignore[arg-type]  # by name
            kept = []
            for _ in range(5):
                reader, writer = await server.connected()
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"200" in await reader.readline()
                kept.append(writer)
            assert not await server.answers()
            kept.pop().close()
            await eventually("an answer", server.answers)
            for writer in kept:
                writer.close()


# Rates


async def test_a_key_has_its_burst_and_then_a_rate_and_others_are_not_held_up(found: People) -> None:
    headers = found.auth("member.red")
    answers: list[int] = []
    waits: list[str] = []
    while 429 not in answers and len(answers) < 2000:
        async with found.client.get("/api/v1/mesh", headers=headers) as response:
            answers.append(response.status)
            waits.append(response.headers.get("Retry-After", ""))
            problem = await response.json()
    assert answers.count(200) >= 500
    assert (answers[-1], waits[-1], problem["code"]) == (429, "1", "too_many_requests")
    for other in (found.auth("member.blue"), AUTH):
        async with found.client.get("/api/v1/mesh", headers=other) as response:
            assert response.status == 200


@pytest.mark.attack(36)
async def test_guesses_of_a_token_are_slowed_and_those_who_know_one_are_not(found: People) -> None:
    assert found.client.app is not None
    found.client.app[RATES].strangers = TokenBuckets(STRANGER_PER_S, STRANGER_BURST)
    answers: list[int] = []
    while 429 not in answers and len(answers) < 2000:
        async with found.client.get(
            "/api/v1/mesh", headers={"Authorization": f"Bearer guess{len(answers)}"}
        ) as response:
            answers.append(response.status)
    assert answers[-1] == 429
    assert set(answers[:-1]) == {401}
    async with found.client.get("/api/v1/mesh", headers=AUTH) as response:
        assert response.status == 200


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2)), max_size=60), st.floats(1, 20), st.integers(1, 10))
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(steps: list[Any], per_s: float, burst: int) -> None:
    buckets, now_s = TokenBuckets(per_s, burst), 0.0
    given_to: dict[str, list[float]] = {}
    for name, pause_s in steps:
        now_s += pause_s
        wait_s = buckets.take(name, now_s)
        assert wait_s >= 0
        if wait_s == 0:
            given_to.setdefault(name, []).append(now_s)
    for times in given_to.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                assert last - first + 1 <= burst + per_s * (times[last] - times[first]) + 1e-6


def test_names_are_forgotten_before_they_fill_the_memory() -> None:
    buckets = TokenBuckets(1, 1, most=10)
    for number in range(1000):
        buckets.take(str(number), 0.0)
    assert len(buckets._buckets) == 10


# ATTACKS 41


class _Disk:
    """A disk of which a test says how much is free."""

    def __init__(self, total: int) -> None:
        self.total, self.free = total, total

    def __call__(self, _: str) -> os.statvfs_result:
        values = [4096, 4096, self.total // 4096, self.free // 4096, self.free // 4096, 0, 0, 0, 0, 255]
        return os.statvfs_result(values)


@pytest.mark.attack(41)
def test_output_leaves_the_last_of_the_disk_alone_and_says_what_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(100 << 30)
    monkeypatch.setattr("agentd.logs.writer.os.statvfs", disk)
    log = LogWriter(str(tmp_path), 4 << 20, 8, reserve=True)
    log.append(OUT, b"before\n", 1)
    disk.free = reserved_bytes(disk.total) - 1
    for _ in range(40):
        log.append(OUT, b"x" * 65_535 + b"\n", 2)
    lost = log.lost_bytes
    assert 40 * 65_536 - (1 << 20) - 65_536 <= lost < 40 * 65_536
    disk.free = disk.total
    log.append(OUT, b"after\n", 3)
    log.close()
    reader = LogReader(str(tmp_path))
    lines = [entry for entry in (*reader.read(), *reader.finish()) if isinstance(entry, Line)]
    reader.close()
    (said,) = [line.text for line in lines if line.stream == PLATFORM]
    assert f"{lost} bytes of output were lost here" in said
    assert "256 MiB of the disk are kept for the mesh's own log" in said
    assert (lines[0].text, lines[-1].text) == ("before", "after")


@given(st.integers(0, 1 << 50))
def test_the_reserve_is_small_beside_any_disk(total: int) -> None:
    assert 0 <= reserved_bytes(total) <= total // 20


def _resident_kb(pid: int | str = "self") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


@pytest.fixture
def big_log(tmp_path: Path) -> Iterator[Path]:
    """240 MB, in lines of one."""
    log = LogWriter(str(tmp_path / "log"), 4 << 20, 64)
    for _ in range(240):
        log.append(OUT, b"x" * 999_999 + b"\n", 1)
    log.close()
    yield tmp_path / "log"


@pytest.mark.attack(37, 41)
async def test_a_reader_that_stalls_costs_no_memory_and_one_who_reads_gets_all(big_log: Path) -> None:
    key = TaskId("tg-a", 1, 0)
    async with aiohttp.ClientSession() as session:
        service = LogService("here", lambda _: str(big_log), lambda _: None, session)
        service.look([Observed(key, 1, "exited")])
        sent = 0

        async def stream(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
            nonlocal sent
            response = aiohttp.web.StreamResponse()
            await response.prepare(request)
            async for batch in service.local(key, Place(), follow=False):
                data = b"".join(json_bytes(item) + b"\n" for item in batch)
                sent += len(data)
                await response.write(data)
            return response

        app = aiohttp.web.Application()
        app.router.add_get("/", stream)
        runner = AgentRunner(app, Connections(), shutdown_timeout=0.1)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        before = _resident_kb()
        try:
            stalled = socket.create_connection(runner.addresses[0])
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            seen = -1

            def settled() -> bool:
                nonlocal seen
                same, seen = seen == sent and sent > 0, sent
                return same

            # Nothing more is read of the file once the kernel's buffers are full.
            await eventually("what was sent to stand still", settled)
            held = sent
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert sent == held < 64 << 20
            # Whoever reads gets all of it, in lines of a bounded length.
            reader, writer = await asyncio.open_connection(*runner.addresses[0], limit=8 << 20)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            size = 0
            assert max(len(line.text) for line in LogReader(str(big_log)).tail(3)) == 999_999
            assert 1 <= len(LogReader(str(big_log)).tail(100_000)) <= 9
            async with asyncio.timeout(60):
                while data := await reader.read(1 << 20):
                    size += len(data)
            assert size > 240_000_000
            writer.close()
            stalled.close()
        finally:
            await runner.cleanup()
        assert _resident_kb() - before < 150_000


@pytest.mark.attack(41)
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_line_of_a_gigabyte_costs_its_shim_no_memory(tmp_path: Path) -> None:
    """The real shim on a real program; what it prints is rotated away, and the end is told."""
    lease = LeaseWriter(str(tmp_path / "lease"), read_boot_id())
    lease.extend(boottime_ns() + 600 * 1_000_000_000)
    task = tmp_path / "tasks" / "tg-a" / "1" / "0"
    task.mkdir(parents=True)
    size = int(os.environ.get("HF_LOG_LINE_MB", "1024")) << 20
    spec = {
        "shell": f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end",
        "env": {"PATH": os.environ["PATH"]},
        "cwd": str(tmp_path),
        "gpus": [],
        "stop_grace_s": 5,
        "on_isolation": "stop",
        "log": {"max_bytes": 1 << 20, "files": 4},
        "token": 1,
        "lease_path": str(tmp_path / "lease"),
        "isolation": ["subreaper"],
    }
    write_json(str(task / "spec.json"), spec)
    shim = subprocess.Popen(
        [sys.executable, "-I", "-S", "-E", str(ROOT / "agentd" / "shim" / "__main__.py"), str(task)]
    )
    most_kb = 0
    while shim.poll() is None:
        with contextlib.suppress(OSError, AssertionError):
            most_kb = max(most_kb, _resident_kb(shim.pid))
        time.sleep(0.05)
    lease.close()
    ended = json.loads((task / "exit.json").read_text())
    assert (ended["why"], ended["exit_code"]) == ("exited", 0)
    assert ended["log_end"] > size
    assert 0 < most_kb < 60_000
    on_disk = sum(path.stat().st_size for path in (task / "log").iterdir())
    assert on_disk < 8 << 20
    reader = LogReader(str(task / "log"))
    entries = [*reader.read()]
    while more := reader.read():
        entries = [*entries[-4:], *more]
    entries += reader.finish()
    reader.close()
    assert [entry.text for entry in entries if isinstance(entry, Line)][-1] == "end"


def test_descriptors_are_left_for_everything_else() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert Connections()._most <= soft // 2
