"""Each deliberate gap in how files are served is found by the scenario that names it; without it the scenario holds."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from agentd.http.callers import HEADER_FOR
from tests.integration.file_hosts import FileMesh, file_mesh
from tests.integration.served_api import AUTH
from tests.integration.test_files_broken import MIB, cut_upload, names, read_some
from tests.mutants.file_mutants import MUTANTS
from tests.security.test_files import key

SECRET = b"of the host"


async def a_link_leads_nowhere(mesh: FileMesh) -> bool:
    (mesh.directory / "secret").write_bytes(SECRET)
    (mesh.checkpoint / "link").symlink_to(mesh.directory / "secret")
    return SECRET not in (await mesh.get(0, "/checkpoint/link")).body


async def a_sibling_is_outside(mesh: FileMesh) -> bool:
    sibling = Path(f"{mesh.checkpoint}0")
    sibling.mkdir()
    (sibling / "x").write_bytes(SECRET)
    return (await mesh.get(0, f"{sibling}/x")).status == 400


async def half_an_upload_is_not_seen(mesh: FileMesh) -> bool:
    await cut_upload(mesh, 0, "/checkpoint/f", 3 * MIB, 2 * MIB, upload="upload-1", size=str(3 * MIB))
    return (await mesh.get(0, "/checkpoint/f")).status == 404


async def a_part_that_is_sent_again_counts_once(mesh: FileMesh) -> bool:
    for offset, part in ((0, b"AAAAA"), (0, b"AAAAA"), (5, b"BB")):
        await mesh.put(0, "/checkpoint/f", part, offset=offset, upload="upload-1", size=7)
    return names(mesh) == ["f"] and (mesh.checkpoint / "f").read_bytes() == b"AAAAABB"


async def what_was_sent_is_one_state_of_the_file(mesh: FileMesh) -> bool:
    (mesh.checkpoint / "big").write_bytes(b"A" * (64 * MIB))
    try:
        async with read_some(mesh, 0, MIB) as response:
            with (mesh.checkpoint / "big").open("r+b") as file:
                file.seek(63 * MIB)
                file.write(b"B")
            await response.content.read()
    except aiohttp.ClientError:
        return True
    return False


async def the_host_of_the_files_judges_again(mesh: FileMesh) -> bool:
    (mesh.checkpoint / "f").write_bytes(SECRET)
    _, key_id = await key(mesh, "member", "blue")
    path = f"/mesh/v1/files/{mesh.group_id}/1/0/content"
    auth = AUTH | {HEADER_FOR: key_id}
    got = await mesh.hosts[0].ask("GET", path, auth, params={"target_path": "/checkpoint/f"})
    return got.status == 404 and SECRET not in got.body


async def who_had_a_file_is_in_the_audit(mesh: FileMesh) -> bool:
    (mesh.checkpoint / "f").write_bytes(b"x")
    await mesh.get(1, "/checkpoint/f")
    return [entry["what"] for entry in await mesh.audit()] == ["RecordDownload"]


KILLERS: dict[str, Callable[[FileMesh], Awaitable[bool]]] = {
    "files-are-opened-by-their-path": a_link_leads_nowhere,
    "paths-are-compared-letter-by-letter": a_sibling_is_outside,
    "uploads-are-written-in-their-place": half_an_upload_is_not_seen,
    "resent-parts-are-taken-unread": a_part_that_is_sent_again_counts_once,
    "a-file-may-change-while-it-is-sent": what_was_sent_is_one_state_of_the_file,
    "only-the-entry-judges-the-tenant-of-a-file": the_host_of_the_files_judges_again,
    "downloads-leave-no-trace": who_had_a_file_is_in_the_audit,
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_the_mutant_is_killed(tmp_path: Path, name: str) -> None:
    async with file_mesh(tmp_path) as mesh:
        with MUTANTS[name]():
            assert not await KILLERS[name](mesh), f"nobody noticed {name}"


@pytest.mark.parametrize("name", KILLERS)
async def test_the_scenario_holds_without_it(tmp_path: Path, name: str) -> None:
    assert set(KILLERS) == set(MUTANTS)
    async with file_mesh(tmp_path) as mesh:
        assert await KILLERS[name](mesh), os.listdir(mesh.checkpoint)
