"""Files of a group, through the node that has them and through another: lists, ranges, uploads whole and in parts."""

import hashlib
import os

import pytest

from schemas import api
from tests.integration.file_hosts import file_mesh
from tests.integration.test_api_shapes import same_fields

HERE, THERE = 0, 1
BOTH = pytest.mark.parametrize("host", [HERE, THERE], ids=["the node itself", "another node"])


@pytest.fixture
async def mesh(tmp_path):
    async with file_mesh(tmp_path) as found:
        yield found


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@BOTH
async def test_the_mounts_and_what_is_in_one(mesh, host):
    (mesh.checkpoint / "step-9").mkdir()
    (mesh.checkpoint / "model.pt").write_bytes(b"12345")
    (mesh.checkpoint / "away").symlink_to("/etc")
    os.mkfifo(mesh.checkpoint / "pipe")
    found = (await mesh.names(host)).json()
    assert same_fields(found, api.FileList) and found["entries"] == [] and found["type"] == "mounts"
    assert [(m["target"], m["read_only"]) for m in found["mounts"]] == [
        ("/checkpoint", False), ("/dataset", True), ("/extra", False), ("/file.txt", False),
    ]  # fmt: skip
    for name in ("/checkpoint", f"{mesh.checkpoint}", f"//{mesh.checkpoint}//", "/checkpoint/"):
        found = (await mesh.names(host, name)).json()
        assert (found["node_id"], found["target_path"], found["type"]) == ("n1", "/checkpoint", "directory")
        assert [(e["name"], e["type"], e["size"]) for e in found["entries"]] == [
            ("away", "link", None), ("model.pt", "file", 5), ("pipe", "other", None), ("step-9", "directory", None),
        ]  # fmt: skip
    found = (await mesh.names(host, "/checkpoint/model.pt")).json()
    assert found["type"] == "file" and [e["size"] for e in found["entries"]] == [5]
    assert (await mesh.names(host, "/file.txt")).json()["type"] == "file"
    assert (await mesh.names(host, "/checkpoint/none")).status == 404
    assert (await mesh.names(host, "/checkpoint/away/passwd")).json()["code"] == "not_readable"


@BOTH
async def test_pages_in_the_order_of_bytes(mesh, host):
    names = [f"f{number}" for number in range(25)] + ["é", "Z", "a b", "%2e%2e", "x\\..\\y", "\udcff"]
    for name in names:
        (mesh.checkpoint / name).write_bytes(b"")
    seen, cursor = [], ""
    while True:
        page = (await mesh.names(host, "/checkpoint", limit=7, **({"cursor": cursor} if cursor else {}))).json()
        seen += [entry["name"] for entry in page["entries"]]
        assert len(page["entries"]) <= 7 and not page["cut"]
        if (cursor := page["cursor"]) is None:
            break
    assert seen == [os.fsencode(n).decode(errors="replace") for n in sorted(names, key=os.fsencode)]
    odd = await mesh.get(host, "/checkpoint/%2e%2e")
    assert (odd.status, odd.body) == (200, b"")


@BOTH
async def test_ranges(mesh, host):
    data = bytes(range(256)) * 10
    (mesh.checkpoint / "model.pt").write_bytes(data)
    whole = await mesh.get(host, "/checkpoint/model.pt")
    assert (whole.status, whole.body) == (200, data)
    assert whole.headers["Accept-Ranges"] == "bytes" and whole.headers["Content-Length"] == str(len(data))
    tag = whole.headers["ETag"]
    cases = {
        "bytes=0-0": (206, data[:1], "bytes 0-0/2560"),
        "bytes=0-": (206, data, "bytes 0-2559/2560"),
        "bytes=2550-99999": (206, data[2550:], "bytes 2550-2559/2560"),
        "bytes=-10": (206, data[-10:], "bytes 2550-2559/2560"),
        "bytes=-99999": (206, data, "bytes 0-2559/2560"),
        "bytes=2560-": (416, None, "bytes */2560"),
        "bytes=-0": (416, None, "bytes */2560"),
        "bytes=9-5": (200, data, None),
        "bytes=0-1,5-6": (200, data, None),
        "lines=0-5": (200, data, None),
        "bytes=x": (200, data, None),
    }
    for asked, (status, body, shown) in cases.items():
        got = await mesh.get(host, "/checkpoint/model.pt", Range=asked)
        assert (got.status, got.headers.get("Content-Range")) == (status, shown), asked
        assert body is None or got.body == body, asked
    assert (await mesh.get(host, "/checkpoint/model.pt", Range="bytes=5-6", If_Range=tag)).status == 206
    assert (await mesh.get(host, "/checkpoint/model.pt", Range="bytes=5-6", If_Range='"other"')).body == data
    assert (await mesh.get(host, "/checkpoint/model.pt", If_Match='"other"')).status == 412
    head = await mesh.get(host, "/checkpoint/model.pt", "HEAD", Range="bytes=5-6")
    assert (head.status, head.body, head.headers["Content-Length"], head.headers["ETag"]) == (200, b"", "2560", tag)
    (mesh.checkpoint / "empty").write_bytes(b"")
    assert (await mesh.get(host, "/checkpoint/empty")).body == b""
    assert (await mesh.get(host, "/checkpoint/empty", Range="bytes=0-")).status == 416
    assert (await mesh.get(host, "/file.txt")).body == b"a file that is mounted\n"
    (mesh.checkpoint / "model.pt").write_bytes(b"new")
    assert (await mesh.get(host, "/checkpoint/model.pt", Range="bytes=1-", If_Range=tag)).body == b"new"


@BOTH
async def test_a_whole_upload_and_back(mesh, host):
    data = os.urandom(3_000_000)
    put = await mesh.put(host, "/checkpoint/in.bin", data, sha256=sha256(data))
    assert put.status == 200, put
    assert same_fields(put.json(), api.FileWritten)
    assert put.json() == {
        "target_path": "/checkpoint/in.bin", "node_id": "n1", "received": len(data), "complete": True,
        "sha256": sha256(data),
    }  # fmt: skip
    assert (mesh.checkpoint / "in.bin").read_bytes() == data
    assert (mesh.checkpoint / "in.bin").stat().st_mode & 0o7777 == 0o644
    assert (await mesh.get(host, "/checkpoint/in.bin")).body == data
    again = await mesh.put(host, "/checkpoint/in.bin", b"x")
    assert (again.status, again.json()["code"]) == (409, "file_exists")
    assert (await mesh.put(host, "/checkpoint/in.bin", b"x", overwrite=True)).status == 200
    assert (mesh.checkpoint / "in.bin").read_bytes() == b"x"
    assert (await mesh.put(host, "/checkpoint/a/b/c", b"deep")).status == 404
    assert (await mesh.put(host, "/checkpoint/a/b/c", b"deep", parents=True)).status == 200
    assert (await mesh.put(host, "/checkpoint/empty", b"")).json()["received"] == 0
    assert (await mesh.put(host, "/extra/x", b"1")).status == 200
    wrong = await mesh.put(host, "/checkpoint/w", b"1", sha256="0" * 64)
    assert (wrong.status, wrong.json()["code"]) == (400, "digest_differs")
    refused = await mesh.put(host, "/dataset/x", b"1")
    assert (refused.status, refused.json()["code"]) == (409, "mount_read_only") and "/dataset" in refused.body.decode()
    assert sorted(p.name for p in mesh.checkpoint.iterdir()) == ["a", "empty", "in.bin"]


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away takes root")
async def test_what_is_uploaded_belongs_to_whom_the_directory_belongs(mesh):
    os.chown(mesh.checkpoint, 12345, 54321)
    assert (await mesh.put(THERE, "/checkpoint/a/b/c", b"deep", parents=True)).status == 200
    for name in ("a", "a/b", "a/b/c"):
        found = (mesh.checkpoint / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o6000) == (12345, 54321, 0)


@BOTH
async def test_parts_sent_again_after_a_lost_answer(mesh, host):
    parts = {0: b"AAAAA", 5: b"BBBBB", 10: b"CC"}
    how = {"upload": "upload-1", "size": 12}
    for offset in (0, 5, 5, 0, 10, 10):
        answer = await mesh.put(host, "/checkpoint/f", parts[offset], offset=offset, **how)
        assert answer.status == 200, answer.body
        assert answer.json()["complete"] == (offset == 10)
    assert (mesh.checkpoint / "f").read_bytes() == b"AAAAABBBBBCC"
    assert answer.json()["sha256"] == sha256(b"AAAAABBBBBCC")
    late = await mesh.put(host, "/checkpoint/f", b"BBBBB", offset=5, **how)
    assert (late.status, late.json()["code"]) == (409, "upload_finished")
    assert (await mesh.put(host, "/checkpoint/f", b"AAAAA", **how)).json()["code"] == "file_exists"
    assert (mesh.checkpoint / "f").read_bytes() == b"AAAAABBBBBCC"
    assert [p.name for p in mesh.checkpoint.iterdir()] == ["f"]


@BOTH
async def test_parts_that_differ_overlap_leave_gaps_or_go_on_at_a_new_agent(mesh, host):
    how = {"upload": "upload-2", "size": 12}
    assert (await mesh.put(host, "/checkpoint/g", b"AAAAA", **how)).json()["received"] == 5
    assert (await mesh.put(host, "/checkpoint/g", b"AAxAA", **how)).json()["code"] == "upload_differs"
    assert (await mesh.put(host, "/checkpoint/g", b"CC", offset=10, **how)).json()["code"] == "upload_gap"
    # Nobody sees it, under any name.
    assert (await mesh.names(host, "/checkpoint")).json()["entries"] == []
    (hidden,) = mesh.checkpoint.iterdir()
    assert (await mesh.get(host, f"/checkpoint/{hidden.name}")).status == 404
    # What an agent remembers goes with it; the part file stays.
    mesh.hosts[HERE].files.uploads._sums.clear()
    assert (await mesh.put(host, "/checkpoint/g", b"AABBBB", offset=3, **how)).json()["received"] == 9
    done = (await mesh.put(host, "/checkpoint/g", b"CCC", offset=9, **how)).json()
    assert done["complete"] and done["sha256"] == sha256(b"AAAAABBBBCCC")
    assert (mesh.checkpoint / "g").read_bytes() == b"AAAAABBBBCCC"
    long = await mesh.put(host, "/checkpoint/h", b"A" * 13, **how)
    assert (long.status, long.json()["code"]) == (400, "upload_too_long")
    assert sorted(p.name for p in mesh.checkpoint.iterdir()) == ["g"]
    missing = await mesh.put(host, "/checkpoint/h", b"A", upload="upload-3")
    assert (missing.status, missing.json()["field"]) == (400, "size")
