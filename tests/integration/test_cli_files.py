"""`heteroflow files` through a node that does not have them: lists, get and put, broken off and gone on with."""

import json
import os

import pytest

from agentd.http import file_stream
from console.file_transfer import part_of
from console.new_file import give_name
from schemas import limits
from schemas.rules.target_path import NO_SECOND_NAME
from tests.integration.file_hosts import FileMesh, file_mesh
from tests.integration.test_cli import HOSTILE, Cli

MIB = 1 << 20


class Files(Cli):
    def __init__(self, mesh: FileMesh, directory) -> None:
        super().__init__(mesh.mesh, f"127.0.0.1:{mesh.hosts[1].client.port}", directory)
        self.files = mesh

    async def ran(self, *words: str, tty: bool = False) -> int:
        return await self("files", words[0], self.files.group_id, *words[1:], "--timeout", "3", tty=tty)


@pytest.fixture
async def cli(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    async with file_mesh(tmp_path) as mesh:
        yield Files(mesh, here)


async def test_lists(cli):
    assert await cli.ran("ls") == 0
    assert [line.split()[0] for line in cli.out.splitlines()] == [
        "MOUNT",
        "/checkpoint",
        "/dataset",
        "/extra",
        "/file.txt",
    ]
    there = cli.files.checkpoint
    (there / "step-1").mkdir()
    (there / "model.pt").write_bytes(b"x" * 2048)
    (there / HOSTILE).write_bytes(b"")
    assert await cli.ran("ls", "/checkpoint", tty=True) == 0
    assert "2.0 KiB" in cli.out and "step-1/" in cli.out
    assert "\x1b" not in cli.out and "\u202e" not in cli.out
    assert await cli.ran("ls", "/checkpoint", "-o", "json") == 0
    assert sorted(e["name"] for e in json.loads(cli.out)["entries"]) == sorted(["step-1", "model.pt", HOSTILE])
    for number in range(1100):
        (there / "step-1" / f"{number:04d}").touch()
    assert await cli.ran("ls", "/checkpoint/step-1") == 0
    assert len(cli.out.splitlines()) == 1101
    assert await cli.ran("ls", "/checkpoint/none") == 3 and "missing" in cli.err
    assert await cli.ran("ls", "/etc") == 2 and "own mounts" in cli.err
    assert await cli.ran("ls", "a", "b") == 2
    assert await cli("files", "ls", "no-such-group") == 3


async def test_get(cli):
    data = os.urandom(3 * MIB)
    (cli.files.checkpoint / "model.pt").write_bytes(data)
    assert await cli.ran("get", "/checkpoint/model.pt") == 0
    assert cli.out == "model.pt\n" and (cli.dir / "model.pt").read_bytes() == data
    assert await cli.ran("get", "/checkpoint/model.pt") == 5 and "--force" in cli.err
    (cli.dir / "model.pt").write_bytes(b"old")
    assert await cli.ran("get", "/checkpoint/model.pt", ".", "--force", "-o", "json") == 0
    assert json.loads(cli.out) == {"file": "model.pt", "bytes": 3 * MIB, "resumed_at": 0}
    assert (cli.dir / "model.pt").read_bytes() == data
    (cli.files.checkpoint / "empty").write_bytes(b"")
    assert await cli.ran("get", "/checkpoint/empty", "other") == 0 and (cli.dir / "other").read_bytes() == b""
    assert await cli.ran("get", "/checkpoint") == 2 and "files ls" in cli.err
    (cli.files.checkpoint / HOSTILE).write_bytes(b"odd")
    assert await cli.ran("get", f"/checkpoint/{HOSTILE}") == 2 and "\x1b" not in cli.err
    assert await cli.ran("get", f"/checkpoint/{HOSTILE}", "named") == 0
    (cli.files.checkpoint / "link").symlink_to("/etc/passwd")
    assert await cli.ran("get", "/checkpoint/link") == 2 and "links are not followed" in cli.err.lower()
    assert await cli.ran("get", "/checkpoint/model.pt", "no/such/directory/x") == 5
    assert sorted(os.listdir(cli.dir)) == ["model.pt", "named", "other"]


@pytest.mark.parametrize("said", sorted(NO_SECOND_NAME))
async def test_a_disk_that_gives_no_file_a_second_name(cli, monkeypatch, said):
    """FAT on a stick, a bucket that is mounted: `link` is refused there, on this host and on the one with the files."""

    def link(*_, **__):
        raise OSError(said, os.strerror(said))

    monkeypatch.setattr(os, "link", link)
    (cli.dir / "model.pt").write_bytes(b"mine")
    assert await cli.ran("put", "model.pt", "/checkpoint/") == 0, cli.err
    assert (cli.files.checkpoint / "model.pt").read_bytes() == b"mine"
    assert await cli.ran("get", "/checkpoint/model.pt", "back") == 0, cli.err
    assert (cli.dir / "back").read_bytes() == b"mine"
    # Nothing is replaced there either, also what came while the bytes did.
    (cli.files.checkpoint / "model.pt").write_bytes(b"other")
    assert await cli.ran("put", "model.pt", "/checkpoint/") == 5 and "--force" in cli.err
    with pytest.raises(FileExistsError):
        give_name(cli.dir / "model.pt", cli.dir / "back")
    assert sorted(os.listdir(cli.dir)) == ["back", "model.pt"]
    assert os.listdir(cli.files.checkpoint) == ["model.pt"]
    assert (cli.files.checkpoint / "model.pt").read_bytes() == b"other"


async def test_a_get_that_is_cut_keeps_what_came_and_goes_on(cli, monkeypatch):
    """Agents that end every connection after some MiB, then at once, then not at all."""
    data = os.urandom(18 * MIB)
    (cli.files.checkpoint / "big").write_bytes(data)
    sends, whole = [8 * MIB], file_stream._write

    async def cut(response, first, blocks):
        left = sends[0] - len(first)
        if sends[0]:
            await response.write(first)
            async for block in blocks:
                if (left := left - len(block)) < 0:
                    break
                await response.write(block)
        return False

    monkeypatch.setattr(file_stream, "_write", cut)
    assert await cli.ran("get", "/checkpoint/big") == 0
    assert (cli.dir / "big").read_bytes() == data
    (cli.dir / "big").unlink()
    tag = (await cli.files.names(0, "/checkpoint/big")).json()["entries"][0]["tag"]
    part = part_of(cli.dir / "big", tag)
    part.write_bytes(data[: 17 * MIB])
    sends[0] = 0
    assert await cli.ran("get", "/checkpoint/big") == 4
    assert f"{17 * MIB} of {18 * MIB} bytes" in cli.err and "run the same command again" in cli.err
    assert os.listdir(cli.dir) == [part.name] and part.stat().st_size == 17 * MIB
    monkeypatch.setattr(file_stream, "_write", whole)
    assert await cli.ran("get", "/checkpoint/big", "-o", "json") == 0
    assert json.loads(cli.out)["resumed_at"] == 17 * MIB
    assert (cli.dir / "big").read_bytes() == data and os.listdir(cli.dir) == ["big"]


async def test_put(cli):
    data = os.urandom(2 * MIB)
    (cli.dir / "w.bin").write_bytes(data)
    there = cli.files.checkpoint
    assert await cli.ran("put", "w.bin", "/checkpoint/") == 0
    assert cli.out == "/checkpoint/w.bin on n1\n" and (there / "w.bin").read_bytes() == data
    assert await cli.ran("put", "w.bin", "/checkpoint/w.bin") == 5 and "--force" in cli.err
    assert await cli.ran("put", "w.bin", "/checkpoint/w.bin", "--force") == 0
    assert await cli.ran("put", "w.bin", "/checkpoint/a/b/w.bin") == 3
    assert await cli.ran("put", "w.bin", "/checkpoint/a/b/w.bin", "--parents") == 0
    (cli.dir / "none").touch()
    assert await cli.ran("put", "none", "/checkpoint/none", "-o", "json") == 0
    assert json.loads(cli.out)["bytes"] == 0
    assert await cli.ran("put", "w.bin", "/dataset/w.bin") == 5 and "read-only" in cli.err
    assert await cli.ran("put", "nowhere", "/checkpoint/x") == 2
    assert await cli.ran("put", ".", "/checkpoint/x") == 2
    assert sorted(path.name for path in there.iterdir()) == ["a", "none", "w.bin"]


async def test_a_put_that_was_killed_goes_on(cli, monkeypatch):
    from console import file_transfer

    monkeypatch.setattr(file_transfer, "FILE_PART_MAX", MIB)
    assert limits.FILE_PART_MAX == 64 * MIB
    data = os.urandom(5 * MIB + 17)
    (cli.dir / "w.bin").write_bytes(data)
    put, parts = file_transfer._put, []

    async def killed(remote, how, file, start, end, *rest):
        if len(parts) == 4:
            raise KeyboardInterrupt
        parts.append((start, end))
        return await put(remote, how, file, start, end, *rest)

    monkeypatch.setattr(file_transfer, "_put", killed)
    with pytest.raises(KeyboardInterrupt):
        await cli.ran("put", "w.bin", "/checkpoint/w.bin")
    assert parts == [(0, 0), (0, MIB), (MIB, 2 * MIB), (2 * MIB, 3 * MIB)]
    monkeypatch.setattr(file_transfer, "_put", put)
    assert await cli.ran("put", "w.bin", "/checkpoint/w.bin", "-o", "json") == 0
    assert json.loads(cli.out)["resumed_at"] == 3 * MIB
    assert (cli.files.checkpoint / "w.bin").read_bytes() == data
    assert len(list(cli.files.checkpoint.iterdir())) == 1
