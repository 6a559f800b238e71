"""Files of a group when something breaks: connections, disks, nodes, files that change, groups that end and go."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections import Counter

import aiohttp
import pytest

from agentd.files import service as service_module
from agentd.files import source
from agentd.files.source import LocalSource
from schemas.commands import command
from tests.integration.file_hosts import file_mesh
from tests.integration.served_api import AUTH, TOKEN
from tests.integration.test_files import BOTH, HERE, THERE, sha256
from tests.waiting import eventually

MIB = 1 << 20


@pytest.fixture
async def mesh(tmp_path):
    async with file_mesh(tmp_path) as found:
        yield found


async def cut_upload(mesh, host: int, target_path: str, said: int, sent: int, **params: object) -> None:
    """The head of a PUT of `said` bytes, `sent` of them, and no more."""
    client = mesh.hosts[host].client
    asked = client.make_url(mesh.route("/content")).update_query(target_path=target_path, **params)
    _, writer = await asyncio.open_connection(client.host, client.port)
    head = [
        f"PUT {asked.raw_path_qs} HTTP/1.1", f"Host: {client.host}:{client.port}", f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/octet-stream", f"Content-Length: {said}", "", "",
    ]  # fmt: skip
    writer.write("\r\n".join(head).encode() + b"A" * sent)
    await writer.drain()

    async def begun() -> bool:
        return any(mesh.checkpoint.iterdir())

    await eventually("the upload", begun)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def names(mesh) -> list[str]:
    return sorted(path.name for path in mesh.checkpoint.iterdir())


async def until_names(mesh, wanted: list[str]) -> None:
    async def so() -> bool:
        return names(mesh) == wanted

    await eventually(lambda: f"{wanted}; there are {names(mesh)}", so)


@BOTH
@pytest.mark.attack(12)
async def test_a_whole_upload_that_breaks_off_leaves_nothing(mesh, host):
    await cut_upload(mesh, host, "/checkpoint/f", 3 * MIB, 2 * MIB)
    await until_names(mesh, [])
    # A shorter one behind it has no bytes of it, and neither has one of a file that is there.
    assert (await mesh.put(host, "/checkpoint/f", b"B" * 50)).status == 200
    await cut_upload(mesh, host, "/checkpoint/f", 3 * MIB, 2 * MIB, overwrite="true")
    await until_names(mesh, ["f"])
    assert (mesh.checkpoint / "f").read_bytes() == b"B" * 50


@BOTH
async def test_a_part_that_breaks_off_goes_on_where_it_was(mesh, host):
    how = {"upload": "upload-4", "size": 3 * MIB}
    await cut_upload(mesh, host, "/checkpoint/f", 3 * MIB, 2 * MIB, **how)
    data = b"A" * (3 * MIB)
    done = await mesh.put(host, "/checkpoint/f", data, **how)
    assert done.status == 200 and done.json()["sha256"] == sha256(data), done.body
    assert names(mesh) == ["f"]


@BOTH
async def test_a_full_disk_is_507_and_leaves_what_was_there(mesh, host):
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mesh.checkpoint)], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a small disk takes root")
    try:
        (mesh.checkpoint / "f").write_bytes(b"old")
        for params in ({}, {"upload": "upload-5", "size": 2 * MIB}):
            full = await mesh.put(host, "/checkpoint/f", b"A" * (2 * MIB), overwrite=True, **params)
            assert (full.status, full.json()["code"]) == (507, "disk_full"), full.body

        # Without a length it is found out on the way.
        async def endless():
            for _ in range(32):
                yield b"A" * 65536

        full = await mesh.put(host, "/checkpoint/f", endless(), overwrite=True)
        assert (full.status, full.json()["code"]) == (507, "disk_full"), full.body
        assert (mesh.checkpoint / "f").read_bytes() == b"old" and names(mesh) == ["f"]
    finally:
        subprocess.run(["umount", "-l", str(mesh.checkpoint)], check=True)


def cut_all(server) -> None:
    for connection in list(server.handler.connections):
        if connection.transport is not None:
            connection.transport.abort()


@contextlib.asynccontextmanager
async def read_some(mesh, host: int, size: int):
    """A download of which `size` bytes were read."""
    url = mesh.hosts[host].client.make_url(mesh.route("/content")).update_query(target_path="/checkpoint/big")
    async with aiohttp.ClientSession(headers=AUTH) as session, session.get(url) as response:
        assert response.status == 200
        await response.content.readexactly(size)
        yield response


@BOTH
async def test_a_file_that_changes_meanwhile_is_cut_and_not_ended(mesh, host):
    with (mesh.checkpoint / "big").open("wb") as file:
        file.truncate(64 * MIB)
    for change in ("written to", "shorter"):
        async with read_some(mesh, host, MIB) as response:
            if change == "written to":
                with (mesh.checkpoint / "big").open("r+b") as file:
                    file.seek(63 * MIB)
                    file.write(b"x")
            else:
                os.truncate(mesh.checkpoint / "big", 40 * MIB)
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()


async def test_a_file_that_is_replaced_meanwhile_is_read_as_it_was(mesh):
    with (mesh.checkpoint / "big").open("wb") as file:
        file.truncate(32 * MIB)
    async with read_some(mesh, HERE, MIB) as response:
        (mesh.checkpoint / "other").write_bytes(b"new")
        os.rename(mesh.checkpoint / "other", mesh.checkpoint / "big")
        assert len(await response.content.read()) == 31 * MIB
    assert (await mesh.get(HERE, "/checkpoint/big")).body == b"new"


async def test_a_holder_that_comes_back_goes_on_and_one_that_does_not_cuts(mesh, monkeypatch):
    monkeypatch.setattr(source, "FILE_PART_MAX", MIB)
    monkeypatch.setattr(source, "_GIVE_UP_S", 1.0)
    data = os.urandom(24 * MIB)
    (mesh.checkpoint / "big").write_bytes(data)
    holder = mesh.hosts[HERE].client.server
    port = holder.port
    async with read_some(mesh, THERE, MIB) as response:
        await holder.runner.sites.copy().pop().stop()
        cut_all(holder)
        site = aiohttp.web.TCPSite(holder.runner, "127.0.0.1", port, reuse_address=True)
        await site.start()
        assert await response.content.read() == data[MIB:]
    async with read_some(mesh, THERE, MIB) as response:
        await site.stop()
        cut_all(holder)
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
    gone = await mesh.names(THERE, "/checkpoint")
    assert gone.status == 503 and gone.json()["code"] == "node_unreachable" and "n1" in gone.json()["message"]
    assert (await mesh.put(THERE, "/checkpoint/f", b"1")).json()["code"] == "node_unreachable"
    await mesh.mesh.propose(command("ExpireNode", node_id="n1", uid="uid-n1", text="silent for 15 s"))
    lost = (await mesh.get(THERE, "/checkpoint/big")).json()
    assert lost["code"] == "node_lost" and "is lost (since " in lost["message"] and "share" in lost["hint"]


async def test_a_group_that_ended_is_served_and_one_that_was_removed_or_never_placed_is_not(mesh):
    (mesh.checkpoint / "f").write_bytes(b"kept")
    assert (await mesh.hosts[THERE].ask("POST", f"/api/v1/task-groups/{mesh.group_id}/stop")).status == 200
    await mesh.state.until(
        mesh.group_id, lambda group, tasks: group["status"] == "stopped" and tasks[0]["released"], 30
    )
    assert (await mesh.get(THERE, "/checkpoint/f")).body == b"kept"
    task = f"/api/v1/tasks/{mesh.group_id}.1.0/files"
    listed = await mesh.hosts[THERE].ask("GET", task, params={"target_path": "/checkpoint"})
    assert [entry["name"] for entry in listed.json()["entries"]] == ["f"]
    got = await mesh.hosts[THERE].ask("GET", f"{task}/content", params={"target_path": "/checkpoint/f"})
    assert got.body == b"kept"
    missing = await mesh.hosts[THERE].ask("GET", f"/api/v1/tasks/{mesh.group_id}.1.7/files")
    assert (missing.status, missing.json()["code"]) == (404, "no_such_task")
    assert (await mesh.hosts[THERE].ask("DELETE", f"/api/v1/task-groups/{mesh.group_id}")).status == 200
    gone = await mesh.get(THERE, "/checkpoint/f")
    assert (gone.status, gone.json()["code"]) == (404, "no_such_group") and "removed" in gone.json()["hint"]
    waiting = await mesh.start(f"tg-{8:020d}")
    for path in ("", "/content"):
        params = {"target_path": "/checkpoint"}
        answer = await mesh.hosts[THERE].ask("GET", mesh.route(path, waiting), params=params)
        assert (answer.status, answer.json()["code"]) == (409, "not_placed")


async def test_one_entry_in_the_audit_for_the_ranges_of_a_download_and_the_parts_of_an_upload(mesh):
    (mesh.checkpoint / "f").write_bytes(b"12345")
    for at in range(5):
        assert (await mesh.get(THERE, "/checkpoint/f", Range=f"bytes={at}-{at}")).status == 206
        how = {"upload": "upload-6", "size": 5}
        assert (await mesh.put(THERE, "/checkpoint/g", b"x", offset=at, **how)).status == 200
    await mesh.get(THERE, "/checkpoint/f", "HEAD")
    await mesh.names(THERE, "/checkpoint")
    told = [(e["what"], e["target"], e["details"]["path"], e["node_id"]) for e in await mesh.audit()]
    assert told == [
        ("RecordUpload", mesh.group_id, "/checkpoint/g", "n2"),
        ("RecordDownload", mesh.group_id, "/checkpoint/f", "n2"),
    ]


@BOTH
async def test_a_reader_that_takes_nothing_is_read_no_further_ahead_than_buffers_hold(mesh, host, monkeypatch):
    with (mesh.checkpoint / "big").open("wb") as file:
        file.truncate(256 * MIB)
    read_at, block = [0.0, 0], LocalSource._block

    def counted(self, at, length, last):
        read_at[:] = [time.monotonic(), at + length]
        return block(self, at, length, last)

    monkeypatch.setattr(LocalSource, "_block", counted)
    async with read_some(mesh, host, 1000) as response:

        async def still() -> bool:
            return time.monotonic() - read_at[0] > 1.0

        await eventually("a pause", still)
        assert read_at[1] <= 48 * MIB, read_at
        assert len(await response.content.read()) == 256 * MIB - 1000


async def test_so_many_at_once_and_no_more(mesh, monkeypatch):
    monkeypatch.setattr(service_module, "TRANSFERS_OF_CALLER_MAX", 2)
    with (mesh.checkpoint / "big").open("wb") as file:
        file.truncate(64 * MIB)
    seen: Counter[int] = Counter()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            response = await stack.enter_async_context(read_some(mesh, HERE, 1000))
            seen[response.status] += 1
        refused = await mesh.get(HERE, "/checkpoint/big", Range="bytes=0-0")
        assert (refused.status, refused.json()["code"]) == (503, "too_many_transfers") and seen == {200: 2}

    async def again() -> bool:
        return (await mesh.get(HERE, "/checkpoint/big", Range="bytes=0-0")).status == 206

    await eventually("a place", again)
