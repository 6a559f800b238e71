"""What two nodes compare: equal on one disk, different on two."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from agentd.checkpoints.fenced import open_fenced
from mesh.core.state.agreement import disagreement, note_view
from schemas.rules.checkpoints.probe import probe
from schemas.rules.checkpoints.sight import TEXT_MAX, sight_of
from tests.unit.checkpoints.trees import copied, in_memory, samples

SAMPLES = [
    ("pytorch-fsdp2-dcp/complete", "fsdp"),
    ("hf-trainer/complete", "ddp"),
    ("deepspeed-zero2/complete", "deepspeed"),
    ("tensorflow-mwms/complete", "tensorflow"),
]


def sight(path, framework="fsdp"):
    with open_fenced(os.path.realpath(path)) as root:
        return sight_of(root, probe(root, framework))


@pytest.mark.parametrize(("sample", "framework"), SAMPLES)
def test_one_tree_looks_the_same_from_everywhere(tmp_path, sample, framework):
    """Another mount, other times (caches tell them late), another order of names: the same bytes."""
    seen = sight(samples() / sample, framework)
    copy = shutil.copytree(samples() / sample, tmp_path / "mounted-elsewhere")
    assert sight(copy, framework) == seen and seen.pick
    tree = in_memory(copy)
    tree.entries = dict(reversed(tree.entries.items()))
    assert sight_of(tree, probe(tree, framework)) == seen
    for file in (one for one in copy.rglob("*") if one.is_file()):
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    later = sight(copy, framework)
    assert later.digest == seen.digest and later.mark != seen.mark, "the mark is of one disk and is not compared"


@pytest.mark.parametrize(("sample", "framework"), SAMPLES)
def test_any_byte_at_an_end_of_a_file_is_a_difference(tmp_path, sample, framework):
    tree = copied(sample, tmp_path)
    before = sight(tree, framework)
    pick = tree / before.pick
    files = sorted(pick.rglob("*") if pick.is_dir() else tree.glob(f"{before.pick}.*"))
    changed = 0
    for file in (one for one in files if one.is_file() and one.stat().st_size):
        data, times = file.read_bytes(), file.stat()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        changed += sight(tree, framework).digest != before.digest
        file.write_bytes(data)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert changed and sight(tree, framework) == before


def test_disks_of_their_own_are_told_apart_also_where_neither_is_complete(tmp_path):
    """DCP on two hosts: rank 0's has the metadata and its own shards, the other one nothing but shards."""
    first = copied("pytorch-fsdp2-dcp/complete", tmp_path / "n1")
    second = copied("pytorch-fsdp2-dcp/complete", tmp_path / "n2")
    for step in ("step-10", "step-20"):
        (first / step / "__1_0.distcp").unlink()
        (second / step / "__0_0.distcp").unlink()
        (second / step / ".metadata").unlink()
    one, other = sight(first), sight(second)
    assert one.pick == other.pick == "" and one.digest != other.digest
    assert "__1_0.distcp" in one.text and ".metadata" in other.text


def test_nothing_at_all_is_nothing_everywhere(tmp_path):
    for name in ("n1", "n2"):
        (tmp_path / name).mkdir()
    (tmp_path / "n2" / "notes.txt").write_text("x")
    assert sight(tmp_path / "n1") == sight(tmp_path / "n2")


def test_thousands_of_shards_and_of_leftovers_stay_small(tmp_path):
    place = tmp_path / "step-5"
    place.mkdir()
    for at in range(3_000):
        (place / f"shard-{at}.bin").write_bytes(b"x" * 10)
        (tmp_path / f"step-{at}.tmp").mkdir()
    seen = sight(tmp_path)
    assert seen.pick == "step-5" and len(seen.text) <= TEXT_MAX
    shutil.move(place / "shard-2999.bin", place / "shard-3000.bin")
    assert sight(tmp_path).digest != seen.digest


ELSEWHERE = """
import json, subprocess, sys
from agentd.claims.checkpoint_probe import look
mounted, place = sys.argv[1] == "own", sys.argv[2]
if mounted:
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
seen = look(place, "fsdp", [sys.argv[3]])
print(json.dumps([seen.resume, seen.sees]))
"""


@pytest.mark.need("netns")
def test_two_hosts_with_the_same_path_and_with_a_disk_of_their_own(tmp_path):
    """Each in a mount namespace, as hosts are: the same path is one directory, or it is not."""
    place = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    seen = {}
    for disk in ("shared", "shared again", "own"):
        command = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            sys.executable,
            "-c",
            ELSEWHERE,
            disk,
            str(place),
            str(tmp_path),
        ]
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        seen[disk] = json.loads(done.stdout)
    assert seen["shared"] == seen["shared again"] and seen["shared"][0]["step"] == 20
    assert seen["own"][0] is None and seen["own"][1]["digest"] != seen["shared"][1]["digest"]
    views: dict[str, Any] = {}
    note_view(views, 0, "n1", seen["shared"][1])
    note_view(views, 1, "n2", seen["shared again"][1])
    assert disagreement(views["views"]) is None
    note_view(views, 2, "n3", seen["own"][1])
    assert "rank 2 on n3 sees none that is complete" in str(disagreement(views["views"]))
