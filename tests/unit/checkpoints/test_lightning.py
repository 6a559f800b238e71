"""Files of Lightning under the names that patterns of users give them, and where it puts them by itself."""

import os

import pytest

from schemas.rules.checkpoints.candidate import Found
from schemas.rules.checkpoints.lightning import lightning_files
from schemas.rules.checkpoints.memory import MemoryDirectory, MemoryFile
from schemas.rules.checkpoints.names import lightning_step
from schemas.rules.checkpoints.retention import plan_retention
from schemas.rules.checkpoints.view import Kind
from tests.unit.checkpoints.tiny import dcp_files, lightning_file, put, torch_file
from tests.unit.checkpoints.trees import in_memory, probed, why


@pytest.mark.parametrize(
    ("name", "step", "version"),
    [
        ("epoch=0-step=20.ckpt", 20, 0),
        ("epoch=0-step=20-v1.ckpt", 20, 1),
        ("epoch=2-step=12-val_loss=0.26.ckpt", 12, 0),
        ("epoch=2-step=12-val_loss=0.26-v3.ckpt", 12, 3),
        ("ep02_step00000012.ckpt", 12, 0),
        ("step-12000000.ckpt", 12_000_000, 0),
        ("epoch=3_global_step=40_loss=1.5.ckpt", 40, 0),
        ("step=12.ckpt", 12, 0),
        ("epoch=2-train_loss_step=0.36.ckpt", None, 0),
        ("epoch=2-step=0.5.ckpt", None, 0),
        ("steps=3.ckpt", None, 0),
        ("footstep=3.ckpt", None, 0),
        ("best.ckpt", None, 0),
    ],
)
def test_steps_in_names(name, step, version):
    order = lightning_step(name)
    assert (order and order.number) == step
    assert order is None or order.version == version


@pytest.mark.parametrize("above", ["", "checkpoints", "lightning_logs/version_3/checkpoints"])
def test_a_pattern_with_a_directory_for_each_epoch(tmp_path, above):
    """`{epoch}/{step}`. The link beside them is not followed."""
    for step in (90, 100):
        put(tmp_path / above / f"epoch={step // 10}", {f"step={step}.ckpt": lightning_file(step)})
    put(tmp_path / "elsewhere", {"step=900.ckpt": lightning_file(900)})
    (tmp_path / above / "epoch=90").symlink_to(tmp_path / "elsewhere")
    newest, older = (f"{above}/epoch={step // 10}/step={step}.ckpt".lstrip("/") for step in (100, 90))
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step) == (newest, 100)
    os.truncate(tmp_path / newest, 200)
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step) == (older, 90) and "is cut short" in why(found, newest)
    os.truncate(tmp_path / older, 200)
    found = probed(tmp_path, "ddp")
    assert found.pick is None and "is no checkpoint itself" in why(found, older.rpartition("/")[0])


@pytest.mark.parametrize(
    "names",
    [
        ["epoch=0-step=4-val_loss=0.27.ckpt", "epoch=2-step=12-val_loss=0.26.ckpt"],
        ["model-epoch=00-val_loss=0.17.ckpt", "model-epoch=02-val_loss=0.16.ckpt"],
        ["epoch=0-train_loss_step=1.39.ckpt", "epoch=2-train_loss_step=0.36.ckpt"],
        ["best-v1.ckpt", "best.ckpt"],
        ["last.ckpt", "last-v1.ckpt"],
        ["ep00_step00000004.ckpt", "last.ckpt"],
    ],
)
def test_the_file_tells_its_step_whatever_it_is_called(tmp_path, names):
    put(tmp_path, {name: lightning_file(step) for name, step in zip(names, (4, 12_000_000), strict=True)})
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step, found.rejected) == (names[1], 12_000_000, [])
    os.truncate(tmp_path / names[1], 200)
    found = probed(tmp_path, "ddp")
    assert found.pick == names[0] and "is cut short" in why(found, names[1])


def test_a_last_that_is_old_is_older(tmp_path):
    """As measured after a restart: `last.ckpt` says 20, `last-v2.ckpt` says 30."""
    files = {"last.ckpt": 20, "last-v1.ckpt": 20, "last-v2.ckpt": 30, "epoch=1-step=30.ckpt": 30}
    put(tmp_path, {name: lightning_file(step) for name, step in files.items()})
    assert probed(tmp_path, "ddp").pick == "epoch=1-step=30.ckpt"
    (tmp_path / "epoch=1-step=30.ckpt").unlink()
    assert probed(tmp_path, "ddp").pick == "last-v2.ckpt"


def test_a_link_to_the_newest_is_not_followed(tmp_path):
    put(tmp_path, {"epoch=0-step=4.ckpt": lightning_file(4)})
    (tmp_path / "last.ckpt").symlink_to(tmp_path / "epoch=0-step=4.ckpt")
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.rejected) == ("epoch=0-step=4.ckpt", [])


def test_weights_only_cannot_be_resumed(tmp_path):
    put(tmp_path, {"epoch=0-step=4.ckpt": lightning_file(4), "epoch=1-step=8.ckpt": lightning_file(8, True)})
    found = probed(tmp_path, "ddp")
    assert found.pick == "epoch=0-step=4.ckpt" and "save_weights_only" in why(found, "epoch=1-step=8.ckpt")


def test_where_neither_tells(tmp_path):
    put(tmp_path, {"best.ckpt": torch_file({"model": {}}), "empty.ckpt": b"", "epoch=0-step=4.ckpt": torch_file()})
    found = probed(tmp_path, "ddp")
    assert found.pick == "epoch=0-step=4.ckpt"
    assert all("tells a step" in why(found, name) for name in ("best.ckpt", "empty.ckpt"))


def test_lightning_s_own_directory(tmp_path):
    """Without dirpath each start has another version; one that has saved nothing yet is the newest."""
    for version, step in (("version_9", 40), ("version_10", 60)):
        put(tmp_path / "lightning_logs" / version / "checkpoints", {f"epoch=1-step={step}.ckpt": lightning_file(step)})
    (tmp_path / "lightning_logs" / "version_11").mkdir()
    (tmp_path / "lightning_logs" / "version_12").symlink_to(tmp_path / "lightning_logs" / "version_10")
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step) == ("lightning_logs/version_10/checkpoints/epoch=1-step=60.ckpt", 60)
    os.truncate(tmp_path / str(found.pick), 100)
    assert probed(tmp_path, "ddp").pick == "lightning_logs/version_9/checkpoints/epoch=1-step=40.ckpt"
    (tmp_path / "lightning_logs" / "version_12").unlink()
    assert plan_retention(in_memory(tmp_path), "ddp", 1).remove == ()


def test_of_too_many_files_the_names_count():
    names: dict[str, Kind] = {f"epoch=0-step={at}.ckpt": "file" for at in range(1001)}
    found = Found()
    lightning_files(MemoryDirectory({name: MemoryFile(lightning_file(7)) for name in names}), names, found)
    assert {candidate.order.number for candidate in found.candidates} == {*range(1001)}


@pytest.mark.attack(12)
def test_a_sharded_save_over_an_older_one(tmp_path):
    """`meta.pt` is written last: what is older than the shards is of the save before."""
    place = tmp_path / "epoch=0-step=20-val_loss=0.5.ckpt"
    put(place, dcp_files("__0_0.distcp", "__1_0.distcp") | {"meta.pt": torch_file()})
    assert (probed(tmp_path, "fsdp").pick, probed(tmp_path, "fsdp").step) == (place.name, 20)
    os.utime(place / ".metadata", (2_000, 2_000))
    assert ".metadata is newer than meta.pt" in why(probed(tmp_path, "fsdp"), place.name)
