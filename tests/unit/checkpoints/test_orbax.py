"""Orbax in the shapes that its managers give it: items below or none, each process's arrays below those."""

import os

import pytest

from tests.unit.checkpoints.tiny import put
from tests.unit.checkpoints.trees import probed, why

MANIFEST = bytes.fromhex("0cdb3a2a") + (24).to_bytes(8, "little") + bytes(11) + b"x"
ITEM = {
    "_METADATA": b"{}",
    "manifest.ocdbt": MANIFEST,
    "d/2f": b"x",
    "ocdbt.process_0/manifest.ocdbt": MANIFEST,
    "ocdbt.process_0/d/3a": b"x",
}
TOP = {"_CHECKPOINT_METADATA": b"{}", "commit_success.txt": b"x"}
WITH_ITEMS = TOP | {f"state/{name}": data for name, data in ITEM.items()} | {"meta/metadata": b"{}"}


@pytest.mark.parametrize("files", [WITH_ITEMS, TOP | ITEM])
@pytest.mark.parametrize("name", ["20", "ckpt_00000020", "my_model_20", "a.b_020", "run2_20", "checkpoint_20"])
def test_whole(tmp_path, files, name):
    put(tmp_path / name, files)
    assert (probed(tmp_path, "jax").pick, probed(tmp_path, "jax").step) == (name, 20)


def gone(path):
    path.unlink()


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def empty(path):
    os.truncate(path, 0)


def zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.attack(12)
@pytest.mark.parametrize("below", ["", "state"])
@pytest.mark.parametrize(
    ("file", "act", "said"),
    [
        ("manifest.ocdbt", gone, "manifest.ocdbt is missing"),
        ("manifest.ocdbt", cut, "manifest.ocdbt has 23 bytes, its beginning says 24"),
        ("manifest.ocdbt", zeros, "nothing but zeros"),
        ("_METADATA", gone, "_METADATA, which tells what"),
        ("_METADATA", cut, "_METADATA is no whole JSON"),
        ("d/2f", empty, "2f is empty"),
        ("ocdbt.process_0/manifest.ocdbt", gone, "ocdbt.process_0/manifest.ocdbt is missing"),
        ("ocdbt.process_0/manifest.ocdbt", cut, "manifest.ocdbt has 23 bytes"),
        ("ocdbt.process_0/d/3a", empty, "3a is empty"),
    ],
)
def test_one_thing_wrong(tmp_path, below, file, act, said):
    for step in ("10", "20"):
        put(tmp_path / step, WITH_ITEMS if below else TOP | ITEM)
    act(tmp_path / "20" / below / file)
    found = probed(tmp_path, "jax")
    assert found.pick == "10" and said in why(found, "20")
