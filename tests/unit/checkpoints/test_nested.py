"""One framework's checkpoint inside another's: each by its own rule, and the names of both in the reason."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.unit.checkpoints.trees import copied, probed, samples, why

DCP = "pytorch-fsdp2-dcp/complete/step-20"
ZERO2 = "deepspeed-zero2/complete/global_step20"
HF = "hf-trainer/complete/checkpoint-20"


def trainer(place: Path, *left_out: str) -> Path:
    """A checkpoint of HF Trainer without its own model and optimizer."""
    shutil.copytree(
        samples() / HF, place, ignore=shutil.ignore_patterns("model.safetensors", "optimizer.pt", *left_out)
    )
    os.utime(place / "trainer_state.json")
    return place


def with_deepspeed(place: Path, tag: str) -> Path:
    place.mkdir(exist_ok=True)
    shutil.copytree(samples() / ZERO2, place / tag)
    (place / "latest").write_text(tag)
    return place / tag


def test_deepspeed_in_hf_trainer(tmp_path):
    inner = with_deepspeed(trainer(tmp_path / "checkpoint-20"), "global_step20")
    for framework in ("deepspeed", "ddp"):
        assert (probed(tmp_path, framework).pick, probed(tmp_path, framework).step) == ("checkpoint-20", 20)
    os.truncate(inner / "zero_pp_rank_1_mp_rank_00_optim_states.pt", 100)
    assert "global_step20 in it: zero_pp_rank_1" in why(probed(tmp_path, "deepspeed"), "checkpoint-20")
    shutil.rmtree(inner)
    assert "global_step20, which `latest` in it names, is missing" in why(probed(tmp_path, "ddp"), "checkpoint-20")
    (tmp_path / "checkpoint-20" / "latest").write_text("../../other/global_step20")
    assert "no single name" in why(probed(tmp_path, "ddp"), "checkpoint-20")


def test_sharded_fsdp_in_hf_trainer(tmp_path):
    place = trainer(tmp_path / "checkpoint-20")
    for part in ("pytorch_model_fsdp_0", "optimizer_0"):
        shutil.copytree(samples() / DCP, place / part)
    assert probed(tmp_path, "fsdp").pick == "checkpoint-20"
    (place / "optimizer_0" / "__0_0.distcp").unlink()
    assert why(probed(tmp_path, "fsdp"), "checkpoint-20").startswith("optimizer_0: __0_0.distcp missing")
    shutil.rmtree(place / "optimizer_0")
    assert "no optimizer state" in why(probed(tmp_path, "fsdp"), "checkpoint-20")


def test_deepspeed_in_accelerate(tmp_path):
    place = tmp_path / "checkpoints" / "checkpoint_2"
    inner = with_deepspeed(place.parent.mkdir() or place, "pytorch_model")
    for rank in range(2):
        (place / f"random_states_{rank}.pkl").write_bytes(b"x")
    found = probed(tmp_path, "deepspeed")
    assert (found.pick, found.step) == ("checkpoints/checkpoint_2", None)
    (inner / "mp_rank_00_model_states.pt").unlink()
    assert "pytorch_model in it: " in why(probed(tmp_path, "deepspeed"), "checkpoints/checkpoint_2")


def test_accelerate_without_shards(tmp_path):
    place = tmp_path / "checkpoint_1"
    place.mkdir()
    for name, source in (("model.safetensors", "model.safetensors"), ("optimizer.bin", "optimizer.pt")):
        shutil.copy2(samples() / HF / source, place / name)
    found = probed(tmp_path, "ddp")
    assert "random_states_0.pkl, which is written last, is missing" in why(found, "checkpoint_1")
    (place / "random_states_0.pkl").write_bytes(b"x")
    assert probed(tmp_path, "ddp").pick == "checkpoint_1"


def test_deepspeed_in_lightning(tmp_path):
    with_deepspeed(tmp_path / "epoch=0-step=20.ckpt", "checkpoint")
    found = probed(tmp_path, "deepspeed")
    assert (found.pick, found.step) == ("epoch=0-step=20.ckpt", 20)


@pytest.mark.attack(9)
@pytest.mark.parametrize(
    "bomb", ["[" * 100_000, "[" * 1_000_001, '{"a":' * 60_000, '{"global_step": ' + "9" * 5000 + "}"]
)
def test_json_bombs(tmp_path, bomb):
    tree = copied("hf-trainer/complete", tmp_path)
    (tree / "checkpoint-20" / "trainer_state.json").write_text(bomb)
    found = probed(tree, "ddp")
    assert found.pick == "checkpoint-10" and "trainer_state.json" in why(found, "checkpoint-20")


def test_a_checkpoint_of_another_step_under_this_name(tmp_path):
    tree = copied("hf-trainer/complete", tmp_path)
    (tree / "checkpoint-20" / "trainer_state.json").write_text(json.dumps({"global_step": 10}))
    assert "is of step 10, the name says 20" in why(probed(tree, "ddp"), "checkpoint-20")


def test_model_parallel_ranks_of_deepspeed(tmp_path):
    """speculators#739: the tracker is ahead, and the part of the second model-parallel rank is missing."""
    tree = copied("deepspeed-zero2/complete", tmp_path)
    for step in ("global_step10", "global_step20"):
        for name in os.listdir(tree / step):
            shutil.copy2(tree / step / name, tree / step / name.replace("mp_rank_00", "mp_rank_01"))
    assert probed(tree, "deepspeed").pick == "global_step20"
    (tree / "global_step20" / "mp_rank_01_model_states.pt").unlink()
    found = probed(tree, "deepspeed")
    assert found.pick == "global_step10" and "mp_rank_01_model_states.pt is missing" in why(found, "global_step20")
