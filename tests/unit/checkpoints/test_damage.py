"""Complete trees with one thing wrong: the checkpoint is rejected for that thing, and the one before it is picked."""

import json
import os
import shutil
import struct
from pathlib import Path

import pytest

from tests.unit.checkpoints.tiny import put, torch_file
from tests.unit.checkpoints.trees import copied, probed, why


def cut(path: Path, size: int = -1) -> None:
    before = path.stat()
    os.truncate(path, size if size >= 0 else before.st_size - 1)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def halved(path: Path) -> None:
    cut(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    cut(path, 0)


def newer(path: Path) -> None:
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now + 10**10, now + 10**10))


def linked(path: Path) -> None:
    """The same content by a link to a file elsewhere."""
    elsewhere = path.parent.parent.parent / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def gone(path: Path) -> None:
    path.unlink()


def tree_gone(path: Path) -> None:
    shutil.rmtree(path)


def zeros(path: Path) -> None:
    """As after a crash of the host: the length is there, the data is not."""
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def temporary_beside(path: Path) -> None:
    path.with_name(path.name + ".tmp").write_text("half")


# sample, framework, file, what is done to it, what the reason says
DCP = ("pytorch-fsdp2-dcp/complete", "fsdp", "step-20", "step-10")
HF = ("hf-trainer/complete", "ddp", "checkpoint-20", "checkpoint-10")
PEFT = ("peft-lora/complete", "ddp", "checkpoint-20", "checkpoint-10")
ZERO2 = ("deepspeed-zero2/complete", "deepspeed", "global_step20", "global_step10")
DIST = ("megatron-torch_dist/complete", "megatron", "iter_0000020", "iter_0000010")
LEGACY = ("layout-only/megatron-legacy-torch/complete", "megatron", "iter_0001000", "iter_0000500")
TF = ("tensorflow-mwms/complete", "tensorflow", "ckpt-60", "ckpt-50")
ORBAX = ("orbax/complete", "jax", "20", "10")
ZERO3 = ("layout-only/deepspeed-zero3/complete", "deepspeed", "global_step100", None)
ACCELERATE = ("layout-only/accelerate-fsdp-sharded/complete", "fsdp", "checkpoint_3", None)
LIGHTNING = ("layout-only/lightning-fsdp-sharded/complete", "fsdp", "epoch=0-step=20.ckpt", None)
KERAS = ("keras-backup-restore/complete", "tensorflow", "latest.weights.h5", None)
NLP = ("layout-only/paddlenlp-trainer/no-done-marker", "paddle", "checkpoint-100", None)
ZIP_END = "directory at the end of the zip is missing"
CASES = [
    (DCP, "step-20/__1_0.distcp", gone, "__1_0.distcp missing: .metadata names 2 shards, 1 are here"),
    (DCP, "step-20/__1_0.distcp", cut, "__1_0.distcp is cut short: 45720 of 45721 bytes"),
    (DCP, "step-20/__0_0.distcp", empty, "__0_0.distcp is empty"),
    (DCP, "step-20/__0_0.distcp", newer, "__0_0.distcp is newer than .metadata"),
    (DCP, "step-20/__0_0.distcp", linked, "__0_0.distcp in it is a symbolic link"),
    (DCP, "step-20/__0_0.distcp", fifo, "no regular file"),
    (DCP, "step-20/.metadata", gone, ".metadata, which is written when all shards are, is missing"),
    (DCP, "step-20/.metadata", empty, ".metadata is empty"),
    (DCP, "step-20/.metadata", cut, ".metadata cannot be read: cut short"),
    (DCP, "step-20/.metadata", zeros, ".metadata cannot be read: no pickle"),
    (DCP, "step-20/.metadata", fifo, "no regular file"),
    (HF, "checkpoint-20/trainer_state.json", halved, "trainer_state.json is no whole JSON"),
    (HF, "checkpoint-20/model.safetensors", gone, "has no model file"),
    (HF, "checkpoint-20/model.safetensors", cut, "model.safetensors has 19807 bytes, its header says 19808"),
    (HF, "checkpoint-20/model.safetensors", zeros, "model.safetensors has no header"),
    (HF, "checkpoint-20/optimizer.pt", gone, "weights only"),
    (HF, "checkpoint-20/optimizer.pt", cut, ZIP_END),
    (HF, "checkpoint-20/optimizer.pt", zeros, "may be half written"),
    (HF, "checkpoint-20/optimizer.pt", newer, "optimizer.pt is newer than trainer_state.json"),
    (HF, "checkpoint-20/optimizer.pt", temporary_beside, "optimizer.pt.tmp in it is a temporary file"),
    (HF, "checkpoint-20/scheduler.pt", cut, ZIP_END),
    (HF, "checkpoint-20/rng_state_0.pth", gone, "rng_state_0.pth is missing"),
    (HF, "checkpoint-20/rng_state_1.pth", gone, "rng_state_1.pth missing, which checkpoint-10 before it has"),
    (PEFT, "checkpoint-20/adapter_model.safetensors", gone, "has no model file"),
    (PEFT, "checkpoint-20/adapter_config.json", gone, "adapter_config.json is missing"),
    (PEFT, "checkpoint-20/adapter_model.safetensors", cut, "its header says"),
    (ZERO2, "global_step20/mp_rank_00_model_states.pt", gone, "no model states"),
    (ZERO2, "global_step20/zero_pp_rank_0_mp_rank_00_optim_states.pt", gone, "zero_pp_rank_0_mp_rank_00_optim"),
    (ZERO2, "global_step20/zero_pp_rank_1_mp_rank_00_optim_states.pt", gone, "which global_step10 before it has"),
    (ZERO2, "global_step20/zero_pp_rank_1_mp_rank_00_optim_states.pt", cut, ZIP_END),
    (ZERO3, "global_step100/zero_pp_rank_3_mp_rank_00_model_states.pt", gone, "zero_pp_rank_3_mp_rank_00_model_states"),
    (ZERO3, "global_step100/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", empty, "is empty"),
    (DIST, "iter_0000020/metadata.json", gone, "metadata.json is missing"),
    (DIST, "iter_0000020/metadata.json", empty, "metadata.json is empty"),
    (DIST, "iter_0000020/.metadata", gone, ".metadata, which is written"),
    (DIST, "iter_0000020/.metadata", newer, ".metadata is newer than metadata.json"),
    (DIST, "iter_0000020/__1_0.distcp", gone, "__1_0.distcp missing"),
    (DIST, "iter_0000020/common.pt", cut, ZIP_END),
    (LEGACY, "iter_0001000/mp_rank_01", tree_gone, "mp_rank_01 missing, which iter_0000500 before it has"),
    (LEGACY, "iter_0001000/mp_rank_00", tree_gone, "mp_rank_00 is missing"),
    (LEGACY, "iter_0001000/mp_rank_01/model_optim_rng.pt", gone, "mp_rank_01: model_optim_rng.pt is missing"),
    (LEGACY, "iter_0001000/mp_rank_01/model_optim_rng.pt", cut, ZIP_END),
    (LEGACY, "iter_0001000/mp_rank_01/distrib_optim.pt", gone, "distrib_optim.pt is in 1 of 2"),
    (TF, "ckpt-60.index", gone, "ckpt-60.index, which is written after the data, is missing"),
    (TF, "ckpt-60.index", cut, "the index is cut short"),
    (TF, "ckpt-60.index", empty, "ckpt-60.index is empty"),
    (TF, "ckpt-60.index", linked, "ckpt-60.index is a symbolic link"),
    (TF, "ckpt-60.data-00000-of-00001", gone, "data-00000-of-00001 is missing"),
    (TF, "ckpt-60.data-00000-of-00001", cut, "cut short: 1953 of 1954 bytes"),
    (ORBAX, "20/default", tree_gone, "default, an item that _CHECKPOINT_METADATA names, is missing"),
    (ORBAX, "20/default/manifest.ocdbt", gone, "default: manifest.ocdbt is missing"),
    (ORBAX, "20/default/manifest.ocdbt", empty, "default: manifest.ocdbt is empty"),
    (ORBAX, "20/_CHECKPOINT_METADATA", cut, "_CHECKPOINT_METADATA is no whole JSON"),
    (ACCELERATE, "checkpoint_3/random_states_0.pkl", gone, "random_states_0.pkl is missing"),
    (ACCELERATE, "checkpoint_3/optimizer_0/__1_0.distcp", gone, "optimizer_0: __1_0.distcp missing"),
    (ACCELERATE, "checkpoint_3/pytorch_model_fsdp_0", tree_gone, "no model file"),
    (ACCELERATE, "checkpoint_3/optimizer_0", tree_gone, "no optimizer state"),
    (LIGHTNING, "epoch=0-step=20.ckpt/meta.pt", gone, "meta.pt is missing"),
    (LIGHTNING, "epoch=0-step=20.ckpt/.metadata", gone, ".metadata"),
    (KERAS, "training_metadata.json", gone, "training_metadata.json is missing"),
    (KERAS, "latest.weights.h5", cut, "cut short: 15599 of 15600 bytes"),
    (KERAS, "latest.weights.h5", newer, "the backup was being written over"),
    (NLP, "checkpoint-100/optimizer.pdopt", gone, "weights only"),
    (NLP, "checkpoint-100/model_state.pdparams", empty, "model_state.pdparams is empty"),
]


@pytest.mark.attack(12)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]} {case[2].__name__}")
def test_one_thing_wrong(tmp_path, case):
    (sample, framework, newest, before), file, damage, said = case
    tree = copied(sample, tmp_path)
    damage(tree / file)
    found = probed(tree, framework)
    assert found.pick == before
    assert said in why(found, newest)


def test_paddle_s_two_layouts(tmp_path):
    tree = copied("paddle/complete", tmp_path)
    empty(tree / "step_20" / "model.pdopt")
    found = probed(tree, "paddle")
    assert (found.pick, found.step) == ("dist_step_20", 20) and "model.pdopt is empty" in why(found, "step_20")
    cut(tree / "dist_step_20" / "1_0.distcp")
    found = probed(tree, "paddle")
    assert found.pick == "step_10" and "does not end like a pickle" in why(found, "dist_step_20")
    gone(tree / "dist_step_20" / "1_0.distcp")
    assert "1_0.distcp missing" in why(probed(tree, "paddle"), "dist_step_20")


def test_an_index_of_shards(tmp_path):
    tree = copied("hf-trainer/complete", tmp_path)
    newest = tree / "checkpoint-20"
    (newest / "model.safetensors").rename(newest / "model-00001-of-00003.safetensors")
    (newest / "model-00002-of-00003.safetensors").touch()
    found = probed(tree, "ddp")
    said = "of the numbered files, model-00003-of-00003.safetensors missing and model-00002-of-00003.safetensors empty"
    assert found.pick == "checkpoint-10" and why(found, "checkpoint-20") == said
    (newest / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "../../other/model.bin"}}))
    assert "has no map of weights to files of this directory" in why(probed(tree, "ddp"), "checkpoint-20")


def test_torchtune_s_one_recipe_belongs_to_the_newest(tmp_path):
    tree = copied("layout-only/torchtune/complete", tmp_path)
    gone(tree / "epoch_1" / "model-00001-of-00001.safetensors")
    found = probed(tree, "fsdp")
    assert found.pick is None and "belongs to a newer one" in why(found, "epoch_0")
    shutil.rmtree(tree / "epoch_1")
    assert probed(tree, "fsdp").pick == "epoch_0"
    cut(tree / "recipe_state" / "recipe_state.pt")
    assert ZIP_END in why(probed(tree, "fsdp"), "epoch_0")


def test_keras_goes_back_to_the_backup_of_the_backup(tmp_path):
    tree = copied("keras-backup-restore/complete", tmp_path)
    for name in ("latest.weights.h5", "training_metadata.json"):
        shutil.copy2(tree / name, tree / f"{name}.bkp")
    assert probed(tree, "tensorflow").pick == "latest.weights.h5"
    cut(tree / "latest.weights.h5", 8000)
    assert probed(tree, "tensorflow").pick == "latest.weights.h5.bkp"


def test_a_zip_of_more_than_four_gib_is_judged_by_its_zip64_end(tmp_path):
    place = tmp_path / "step=7.ckpt"
    start = 5 << 30
    entry = b"PK\x01\x02" + bytes(42)
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 0, 45, 0, 0, 1, 1, len(entry), start)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, start + len(entry), 1)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with place.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(start)  # a hole: nothing of the weights is read
        file.write(entry + record + locator + end)
    assert probed(tmp_path, "ddp").pick == "step=7.ckpt"
    with place.open("r+b") as file:
        file.seek(start)
        file.write(b"\0\0")
    assert "does not lie where its end says" in why(probed(tmp_path, "ddp"), "step=7.ckpt")


# As DeepSpeed 0.19 saves them on two ranks, in the order of its writes.
EXPERTS = [f"layer_{layer}_expert_{expert}_mp_rank_00_model_states.pt" for layer in (0, 1) for expert in range(4)]
PLAIN = [*EXPERTS, "expp_rank_0_mp_rank_00_optim_states.pt", "expp_rank_1_mp_rank_00_optim_states.pt"]
SPLIT = [*EXPERTS, *(f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1))]


@pytest.mark.parametrize("parts", [PLAIN, SPLIT], ids=["plain", "zero"])
def test_the_first_checkpoint_of_a_mixture_of_experts(tmp_path, parts):
    """Nothing tells how many there are: only the last of a row may be gone unseen."""
    names = [*parts, "mp_rank_00_model_states.pt"]
    place = tmp_path / "global_step3"
    put(place, dict.fromkeys(names, torch_file()))
    assert probed(tmp_path, "deepspeed").pick == "global_step3"
    for name in names:
        (place / name).rename(tmp_path / "gone")
        last = "_expert_3" in name or "rank_1" in name
        assert (probed(tmp_path, "deepspeed").pick is not None) == last, name
        (tmp_path / "gone").rename(place / name)
    for path in place.glob("expp_*"):
        path.unlink()
    assert (probed(tmp_path, "deepspeed").pick is not None) == (parts is SPLIT)


@pytest.mark.parametrize("name", [*PLAIN, *SPLIT])
def test_a_part_of_an_expert_that_the_one_before_has(tmp_path, name):
    names = [*(SPLIT if name in SPLIT else PLAIN), "mp_rank_00_model_states.pt"]
    for step in (2, 3):
        put(tmp_path / f"global_step{step}", dict.fromkeys(names, torch_file()))
    (tmp_path / "latest").write_text("global_step3")
    assert probed(tmp_path, "deepspeed").pick == "global_step3"
    (tmp_path / "global_step3" / name).unlink()
    found = probed(tmp_path, "deepspeed")
    assert found.pick == "global_step2" and "missing" in why(found, "global_step3")
