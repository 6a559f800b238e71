"""Attacks on the files of a group through the API, at the node that has them and through another one."""

import asyncio
import contextlib
import io
import os
import socket
import stat
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yarl

from agentd.checkpoints import fenced
from agentd.files import host_files
from schemas.rules.checkpoints.fence import Kernel
from tests.integration.file_hosts import FileMesh, Got, file_mesh
from tests.integration.served_api import AUTH
from tests.waiting import eventually

SECRET = b"of the host, and of nobody else"
SWAPS = int(os.environ.get("HF_FILE_SWAPS", "10000"))
MIB = 1 << 20


@pytest.fixture
async def mesh(tmp_path: Path) -> Any:
    async with file_mesh(tmp_path) as found:
        yield found


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of the host that no mount leads to."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_bytes(SECRET)
    return place


async def both(mesh: FileMesh, target_path: str) -> list[Got]:
    """Whatever can be asked of a path, at both nodes."""
    found = []
    for host in (0, 1):
        found += [await mesh.names(host, target_path), await mesh.get(host, target_path)]
        found.append(await mesh.put(host, target_path, b"planted", overwrite=True, parents=True))
    return found


TRAVERSALS = [
    "/checkpoint/../{outside}/secret",
    "/checkpoint/..{outside}/secret",
    "{checkpoint}/../../../outside/secret",
    "{checkpoint}/./../../../outside/secret",
    "{checkpoint}0/secret",
    "{checkpoint}-old/secret",
    "{checkpoint}#/../../etc/passwd",
    "{checkpoint}?x=/../..",
    "{checkpoint}\\..\\..\\secret",
    "{outside}/secret",
    "//{outside}/secret",
    "/checkpoint//..//..//..{outside}/secret",
    "/etc/passwd",
    "/proc/self/root/etc/passwd",
    "checkpoint/x",
    "../../etc/passwd",
    "~/x",
    "file:///etc/passwd",
    "/checkpoint/a\0/secret",
    "\0",
    "/checkpoint/" + "../" * 60 + "etc/passwd",
    "/checkpoint/" + "x" * 4090,
]


@pytest.mark.attack(1, 2, 11)
async def test_paths_that_leave_are_400_before_any_disk_is_asked(
    mesh: FileMesh, outside: Path, attempts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sibling = Path(f"{mesh.checkpoint}0")
    sibling.mkdir()
    (sibling / "secret").write_bytes(SECRET)

    def refuse(*_: Any) -> None:
        raise AssertionError("a disk was asked")

    monkeypatch.setattr(host_files, "open_fenced", refuse)
    for shape in TRAVERSALS:
        path = shape.format(outside=outside, checkpoint=mesh.checkpoint)
        for answer in await both(mesh, path):
            attempts["tried"] += 1
            assert answer.status == 400, (path, answer)
            assert answer.json()["field"] == "target_path"
            assert SECRET not in answer.body
    assert not (sibling / "x").exists() and list(outside.iterdir()) == [outside / "secret"]


@pytest.mark.attack(1)
async def test_codes_are_decoded_once(mesh: FileMesh, outside: Path, attempts: Counter[str]) -> None:
    route = mesh.route("/content")
    once = ["%2e%2e/%2e%2e/%2e%2e/outside/secret", "..%2f..%2f..%2foutside%2fsecret", "%2e%2e%5c/x", "a%00b"]
    twice = ["%252e%252e/%252e%252e/outside/secret", "%252e%252e%252fsecret", "%c0%ae%c0%ae/secret", "%2500"]
    for host in mesh.hosts:
        for text, wanted in [*((one, {400, 404}) for one in once), *((one, {404}) for one in twice)]:
            attempts["tried"] += 1
            # As it is, on the wire: nothing here may quote it once more.
            url = f"http://127.0.0.1:{host.client.port}{route}?target_path=/checkpoint/{text}"
            async with (
                aiohttp.ClientSession(headers=AUTH) as session,
                session.get(yarl.URL(url, encoded=True)) as response,
            ):
                assert response.status in wanted, (text, response.status)
                assert SECRET not in await response.read()


@pytest.mark.attack(3, 6, 7)
@pytest.mark.parametrize("opens", ["openat2", "O_NOFOLLOW"])
async def test_links_and_what_is_no_file_are_refused_and_tell_nothing(
    mesh: FileMesh, outside: Path, attempts: Counter[str], opens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if opens == "O_NOFOLLOW":
        monkeypatch.setattr(fenced, "kernel", lambda: Kernel(os))
    there = mesh.checkpoint
    (there / "to-file").symlink_to(outside / "secret")
    (there / "to-nothing").symlink_to(outside / "nothing")
    (there / "to-dir").symlink_to(outside)
    (there / "relative").symlink_to("../../../outside/secret")
    (there / "magic").symlink_to("/proc/self/root")
    (there / "inside").write_bytes(b"ok")
    (there / "to-inside").symlink_to("inside")
    os.mkfifo(there / "pipe")
    held = socket.socket(socket.AF_UNIX)
    # The name of a socket is short, and that of a test's directory is not.
    directory = os.open(there, os.O_RDONLY)
    held.bind(f"/proc/self/fd/{directory}/socket")
    os.close(directory)
    if os.geteuid() == 0:
        os.mknod(there / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    refused = ["to-file", "to-nothing", "to-dir/secret", "to-dir/nothing", "relative", "magic/etc/passwd", "to-inside"]
    refused += ["pipe", "socket", "device", "inside/x", "pipe/x"]
    said: dict[str, set[str]] = {}
    with held:
        for name in refused:
            if not os.path.lexists(there / name.split("/")[0]):
                continue
            for host in (0, 1):
                attempts["tried"] += 3
                got = await mesh.get(host, f"/checkpoint/{name}")
                assert got.status in (404, 409) and SECRET not in got.body, (name, got)
                said.setdefault(name, set()).add(got.body.decode().replace(name, "N"))
                put = await mesh.put(host, f"/checkpoint/{name}", b"planted", overwrite=True, parents=True)
                assert put.status in (400, 404, 409), (name, put)
                listed = await mesh.names(host, f"/checkpoint/{name}")
                assert listed.status in (404, 409) or listed.json()["type"] in ("link", "other"), (name, listed)
    # Whether what a link leads to exists is not to be learned.
    assert said["to-file"] == said["to-nothing"] and said["to-dir/secret"] == said["to-dir/nothing"]
    assert [path.name for path in outside.iterdir()] == ["secret"] and (outside / "secret").read_bytes() == SECRET


SWAPPER = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
print("swapping", flush=True)
turn, least = 0, int(sys.argv[2])
while turn < least or not select.select([0], [], [], 0)[0]:
    for _ in range(100):
        one, two = ((b"step-1", b"dirlink"), (b"file", b"filelink"))[turn // 3 % 2]
        if libc.renameat2(-100, one, -100, two, 2):  # AT_FDCWD, RENAME_EXCHANGE
            raise OSError(ctypes.get_errno(), "renameat2")
        turn += 1
print(turn)
"""


@pytest.mark.attack(3, 4)
async def test_links_swapped_in_while_files_are_asked_for_never_lead_out(
    mesh: FileMesh, outside: Path, attempts: Counter[str]
) -> None:
    """HF_FILE_SWAPS: how often at least a directory and a file change places with links to the outside."""
    there = mesh.checkpoint
    (there / "step-1").mkdir()
    for place in (there / "step-1" / "secret", there / "file"):
        place.write_bytes(b"inside!")
    (there / "dirlink").symlink_to(outside)
    (there / "filelink").symlink_to(outside / "secret")
    seen: Counter[str] = Counter()

    async def ask(turn: int) -> None:
        host, way = turn % 2, turn // 2 % 4
        name = ("step-1/secret", "file")[turn // 8 % 2]
        if way < 2:
            got = await mesh.get(host, f"/checkpoint/{name}")
        elif way == 2:
            got = await mesh.names(host, "/checkpoint/step-1")
        else:
            got = await mesh.put(host, "/checkpoint/step-1/planted", b"planted", overwrite=True)
        if got.status == 200:
            seen[("read", "read", "listed", "written")[way]] += 1
            if way < 2:
                assert got.body == b"inside!", got
        else:
            assert got.status in (404, 409, 503), got
            assert SECRET not in got.body
            seen["refused"] += 1

    command = [sys.executable, "-c", SWAPPER, str(there), str(SWAPS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdin is not None and swapper.stdout is not None
        assert swapper.stdout.readline() == "swapping\n"
        turn = 0
        enough = {"read", "listed", "written", "refused"}
        while turn < 160 or (not enough <= set(seen) and turn < 4000):
            await asyncio.gather(*(ask(turn + at) for at in range(8)))
            turn += 8
        swapper.stdin.close()
        swaps = int(await asyncio.to_thread(swapper.stdout.readline))
    assert swapper.returncode == 0 and swaps >= SWAPS
    attempts["tried"] += swaps
    assert enough <= set(seen), seen
    assert [path.name for path in outside.iterdir()] == ["secret"] and (outside / "secret").read_bytes() == SECRET


@pytest.mark.attack(5)
async def test_a_mount_that_was_turned_into_a_link_out_is_not_followed(mesh: FileMesh, outside: Path) -> None:
    mesh.checkpoint.rmdir()
    mesh.checkpoint.symlink_to(outside)
    for answer in await both(mesh, "/checkpoint/secret"):
        assert (answer.status, answer.json()["code"]) == (409, "mount_refused")
        assert SECRET not in answer.body
    assert (outside / "secret").read_bytes() == SECRET


@pytest.mark.attack(6)
async def test_a_million_names_and_a_sparse_terabyte_cost_little(
    mesh: FileMesh, attempts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = 600
    many = mesh.checkpoint / "many"
    many.mkdir()
    for number in range(names):
        (many / f"{number:06d}").touch()
    found = (await mesh.names(1, "/checkpoint/many", limit=3)).json()
    assert [entry["name"] for entry in found["entries"]] == ["000000", "000001", "000002"] and not found["cut"]
    monkeypatch.setattr(host_files, "LISTED_MAX", 300)
    found = (await mesh.names(1, "/checkpoint/many", limit=1000)).json()
    assert len(found["entries"]) == 300 and found["cut"] and found["cursor"] is None
    with (mesh.checkpoint / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    got = await mesh.get(1, "/checkpoint/sparse", Range="bytes=-1")
    assert (got.status, got.body, got.headers["Content-Range"]) == (
        206,
        b"\0",
        f"bytes {(1 << 40) - 1}-{(1 << 40) - 1}/{1 << 40}",
    )
    attempts["tried"] += names


@pytest.mark.attack(6)
async def test_a_part_file_that_somebody_planted_is_not_written_through(
    mesh: FileMesh, outside: Path, attempts: Counter[str]
) -> None:
    how: dict[str, Any] = {"upload": "upload-x", "size": 20}
    assert (await mesh.put(0, "/checkpoint/f", b"A" * 10, **how)).status == 200
    (part,) = mesh.checkpoint.iterdir()
    for plant in ("link", "second name", "pipe"):
        part.unlink(missing_ok=True)
        if plant == "link":
            part.symlink_to(outside / "secret")
        elif plant == "second name":
            os.link(outside / "secret", part)
        else:
            os.mkfifo(part)
        for host in (0, 1):
            attempts["tried"] += 1
            answer = await mesh.put(host, "/checkpoint/f", b"A" * 10, offset=10, **how)
            assert answer.status in (404, 409), (plant, answer)
    assert (outside / "secret").read_bytes() == SECRET


@pytest.mark.attack(8)
async def test_an_archive_comes_back_as_it_was_and_is_not_unpacked(mesh: FileMesh, attempts: Counter[str]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("../escaped", "/tmp/escaped", "link", "link/escaped"):
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.SYMTYPE if name == "link" else tarfile.REGTYPE
            entry.linkname = "/etc" if name == "link" else ""
            archive.addfile(entry)
    for host in (0, 1):
        name = f"/checkpoint/a{host}.tar.gz"
        assert (await mesh.put(host, name, packed.getvalue(), parents=True)).status == 200
        assert (await mesh.get(host, name)).body == packed.getvalue()
        attempts["tried"] += 4
    assert sorted(path.name for path in mesh.checkpoint.iterdir()) == ["a0.tar.gz", "a1.tar.gz"]
    assert not (mesh.checkpoint.parent / "escaped").exists()


@pytest.mark.attack(8)
async def test_parts_cannot_be_put_together_elsewhere_or_beyond_what_was_said(
    mesh: FileMesh, attempts: Counter[str]
) -> None:
    odd: list[dict[str, Any]] = [
        {"upload": "../../escape", "size": 4},
        {"upload": "a/b-12345", "size": 4},
        {"upload": "short", "size": 4},
        {"upload": "x" * 65, "size": 4},
        {"upload": "upload-1\n", "size": 4},
        {"upload": "upload-1", "size": -1},
        {"upload": "upload-1", "size": 1 << 62},
        {"upload": "upload-1", "size": 4, "offset": 5},
        {"upload": "upload-1", "size": 4, "offset": -1},
        {"upload": "upload-1", "size": 3},
        {"upload": "upload-1"},
        {"offset": 4},
        {"size": 3},
        {"upload": "upload-1", "size": 4, "sha256": "0" * 64},
        {"sha256": "../x"},
    ]
    for host in (0, 1):
        for params in odd:
            attempts["tried"] += 1
            answer = await mesh.put(host, "/checkpoint/f", b"AAAA", **params)
            assert answer.status == 400, (params, answer)
    assert list(mesh.checkpoint.iterdir()) == [] and sorted(p.name for p in mesh.checkpoint.parent.iterdir()) == [
        "ckpt", "data", "extra", "file.txt",
    ]  # fmt: skip


NAMES = ["a\nb", "a\r\nSet-Cookie: x=1", "a\x1b]52;c;x\x07", "a\u202egpj.exe", "a\x7f", "a\x9b2J", "a\u2028b"]
NAMES += [".heteroflow-upload-x"]


@pytest.mark.attack(11, 48)
async def test_names_that_break_lines_or_drive_terminals_are_not_made_and_break_no_header(
    mesh: FileMesh, attempts: Counter[str]
) -> None:
    for name in NAMES:
        for host in (0, 1):
            attempts["tried"] += 2
            for path in (f"/checkpoint/{name}", f"/checkpoint/{name}/x"):
                put = await mesh.put(host, path, b"x", parents=True)
                assert put.status in (400, 404), (name, put)
    assert list(mesh.checkpoint.iterdir()) == []
    # A job may have made such a one: it is read, and the name stays where it belongs.
    for name in NAMES[:-1]:
        (mesh.checkpoint / name).write_bytes(b"odd")
        for host in (0, 1):
            attempts["tried"] += 1
            got = await mesh.get(host, f"/checkpoint/{name}")
            assert got.body == b"odd" and "Set-Cookie" not in got.headers, name
            said = got.headers["Content-Disposition"]
            assert said.isascii() and said.isprintable() and said.startswith("attachment; ")


@pytest.mark.attack(35)
async def test_whatever_it_is_a_browser_saves_it_and_shows_nothing(mesh: FileMesh, attempts: Counter[str]) -> None:
    for name in ("index.html", "x.svg", "a.js", "b.xhtml", 'c";x=".html', "events.out", "d.pdf", "e.json"):
        (mesh.checkpoint / name).write_bytes(b"<html><script>alert(1)</script>")
        for host in (0, 1):
            for method, extra in (
                ("GET", {}),
                ("GET", {"Range": "bytes=0-9"}),
                ("HEAD", {}),
                ("GET", {"Accept": "text/html"}),
            ):
                attempts["tried"] += 1
                got = await mesh.get(host, f"/checkpoint/{name}", method, **extra)
                assert got.status in (200, 206)
                assert got.headers["Content-Type"] == "application/octet-stream"
                assert got.headers["X-Content-Type-Options"] == "nosniff"
                assert got.headers["Content-Disposition"].startswith('attachment; filename="')
                assert "sandbox" in got.headers["Content-Security-Policy"]
                assert got.headers["Cache-Control"] == "no-store"


async def key(mesh: FileMesh, role: str, tenant: str, **over: Any) -> tuple[dict[str, str], str]:
    """(headers, id)."""
    body = {"name": f"{role}-{tenant}", "role": role, "tenant": tenant, **over}
    made = (await mesh.hosts[0].ask("POST", "/api/v1/keys", json=body)).json()
    return {"Authorization": f"Bearer {made['key']}"}, made["key_id"]


@pytest.mark.attack(25, 26, 30)
async def test_who_may_read_and_who_may_write(mesh: FileMesh, attempts: Counter[str]) -> None:
    (mesh.checkpoint / "f").write_bytes(b"of red")
    content, listing = mesh.route("/content"), mesh.route()
    none = mesh.route("/content", f"tg-{99:020d}")
    asked = {"params": {"target_path": "/checkpoint/f"}}
    body = {"data": b"x", "headers": {"Content-Type": "application/octet-stream"}}
    written = {"params": {"target_path": "/checkpoint/new", "overwrite": "true"}, **body}
    who = {
        "viewer of red": (await key(mesh, "viewer", "red"), 200, 403),
        "member of red": (await key(mesh, "member", "red"), 200, 200),
        "member of blue": (await key(mesh, "member", "blue"), 404, 404),
        "viewer of blue": (await key(mesh, "viewer", "blue"), 404, 403),
        "operator": (await key(mesh, "operator", "blue"), 200, 200),
        "narrowed to the mesh": (await key(mesh, "member", "red", scopes=["mesh:read"]), 403, 403),
        "narrowed to reading": (await key(mesh, "member", "red", scopes=["tasks:read"]), 200, 403),
    }
    for host in mesh.hosts:
        for name, ((auth, _), reads, writes) in who.items():
            attempts["tried"] += 4
            for route in (content, listing):
                got = await host.ask("GET", route, auth, **asked)
                assert got.status == reads, (name, got)
            put = await host.ask("PUT", content, auth, **written)
            assert put.status == writes, (name, put)
            if reads == 404:
                other = await host.ask("GET", none, auth, **asked)
                got = await host.ask("GET", content, auth, **asked)
                assert got.body.replace(mesh.group_id.encode(), b"") == other.body.replace(
                    f"tg-{99:020d}".encode(), b""
                )
        # Between agents nobody comes with a key of his own.
        peer = f"/mesh/v1/files/{mesh.group_id}/1/0"
        for (auth, _), _, _ in who.values():
            attempts["tried"] += 1
            assert (await host.ask("GET", peer, auth)).status == 403
    told = await mesh.audit()
    assert {entry["who"] for entry in told if entry["ok"]} == {"viewer-red", "member-red", "operator-blue"}


@pytest.mark.attack(28)
@pytest.mark.parametrize("host", [0, 1])
async def test_a_transfer_ends_with_the_key_that_began_it(mesh: FileMesh, attempts: Counter[str], host: int) -> None:
    auth, key_id = await key(mesh, "member", "red")
    with (mesh.checkpoint / "big").open("wb") as file:
        file.truncate(2048 * MIB)
    client = mesh.hosts[host].client
    url = client.make_url(mesh.route("/content"))

    async def drip() -> Any:
        while True:
            yield b"x"
            await asyncio.sleep(0.05)

    async with aiohttp.ClientSession(headers=auth) as session:
        down = await session.get(url.update_query(target_path="/checkpoint/big"))
        kind = {"Content-Type": "application/octet-stream"}
        up = asyncio.create_task(session.put(url.update_query(target_path="/checkpoint/up"), data=drip(), headers=kind))
        await eventually(
            "an upload to begin",
            lambda: any(path.name.startswith(".heteroflow-upload-") for path in mesh.checkpoint.iterdir()),
        )
        assert (await mesh.hosts[0].ask("DELETE", f"/api/v1/keys/{key_id}")).status == 200
        async with asyncio.timeout(30):
            with pytest.raises(aiohttp.ClientError):
                while True:
                    await down.content.readexactly(64 << 10)
                    await asyncio.sleep(0.05)
            with contextlib.suppress(aiohttp.ClientError):
                answer = await up
                assert answer.status == 401
                answer.close()
            await eventually(
                "what was uploaded to be gone",
                lambda: sorted(path.name for path in mesh.checkpoint.iterdir()) == ["big"],
            )
        down.close()
    attempts["tried"] += 2
