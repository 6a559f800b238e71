"""Every sample tree: what is picked, and what is said about what is not."""

import pytest

from schemas.rules.checkpoints.probe import probe
from tests.unit.checkpoints.trees import in_memory, probed, samples

COMPLETE = [
    ("pytorch-fsdp1-dcp/complete", "fsdp", "step-20", 20, None),
    ("pytorch-fsdp2-dcp/complete", "fsdp", "step-20", 20, None),
    ("pytorch-fsdp2-dcp/complete", "ddp", "step-20", 20, None),
    ("pytorch-fsdp2-dcp/async-complete", "fsdp", "step-20", 20, None),
    ("layout-only/torchtitan/complete", "fsdp", "checkpoint/step-20", 20, None),
    ("layout-only/torchtune/complete", "fsdp", "epoch_1", None, None),
    ("layout-only/accelerate-fsdp-sharded/complete", "fsdp", "checkpoint_3", None, None),
    ("layout-only/lightning-fsdp-sharded/complete", "fsdp", "epoch=0-step=20.ckpt", 20, None),
    ("hf-trainer/complete", "ddp", "checkpoint-20", 20, None),
    ("hf-trainer-fsdp/complete", "fsdp", "checkpoint-20", 20, None),
    ("peft-lora/complete", "ddp", "checkpoint-20", 20, None),
    ("deepspeed-zero2/complete", "deepspeed", "global_step20", 20, "global_step20"),
    ("layout-only/deepspeed-zero3/complete", "deepspeed", "global_step100", 100, "global_step100"),
    ("megatron-torch_dist/complete", "megatron", "iter_0000020", 20, "20"),
    ("layout-only/megatron-legacy-torch/complete", "megatron", "iter_0001000", 1000, "1000"),
    ("tensorflow-mwms/complete", "tensorflow", "ckpt-60", 60, "ckpt-60"),
    ("keras-backup-restore/complete", "tensorflow", "latest.weights.h5", None, None),
    ("orbax/complete", "jax", "20", 20, None),
    ("paddle/complete", "paddle", "step_20", 20, None),
    ("layout-only/paddlenlp-trainer/complete", "paddle", "checkpoint-100", 100, None),
    ("layout-only/paddlenlp-trainer/no-done-marker", "paddle", "checkpoint-100", 100, None),
]
# (tree, framework, pick, step, [(rejected, part of the reason)])
INTERRUPTED = [
    (
        "pytorch-fsdp2-dcp/killed-before-metadata-rename",
        "fsdp",
        "step-10",
        10,
        [("step-20", ".metadata.tmp in it is a temporary file")],
    ),
    (
        "pytorch-fsdp2-dcp/killed-mid-shard",
        "fsdp",
        "step-10",
        10,
        [("step-20", ".metadata, which is written when all")],
    ),
    ("pytorch-fsdp2-dcp/nonshared-disk-node0-view", "fsdp", None, None, [("step-20", "__1_0.distcp missing")]),
    ("pytorch-fsdp2-dcp/nonshared-disk-node1-view", "fsdp", None, None, [("step-20", ".metadata, which")]),
    (
        "hf-trainer/killed-state",
        "ddp",
        "checkpoint-10",
        10,
        [("checkpoint-20", "trainer_state.json, which is written")],
    ),
    ("hf-trainer/killed-halfstate", "ddp", "checkpoint-10", 10, [("checkpoint-20", "trainer_state.json is no whole")]),
    (
        "layout-only/deepspeed-zero3/latest-missing-dir",
        "deepspeed",
        "global_step100",
        100,
        [("global_step200", "`latest` names it")],
    ),
    (
        "layout-only/deepspeed-zero3/missing-last-rank",
        "deepspeed",
        None,
        None,
        [("global_step100", "zero_pp_rank_3_mp_rank_00_optim_states.pt is missing")],
    ),
    ("megatron-torch_dist/killed-shard", "megatron", "iter_0000010", 10, [("iter_0000020", "says 10")]),
    (
        "layout-only/megatron-legacy-torch/tracker-behind-newer-partial",
        "megatron",
        "iter_0001000",
        1000,
        [("iter_0001500", "says 1000")],
    ),
    ("layout-only/megatron-legacy-torch/release", "megatron", None, None, [("release", "weights only")]),
    ("layout-only/keras-backup/weights-newer-than-metadata", "tensorflow", None, None, [("latest.weights.h5", "")]),
    ("layout-only/orbax-posix-old", "jax", "10", 10, [("20.orbax-checkpoint-tmp-1719000000", "temporary")]),
    ("torch-single-file/complete", "ddp", None, None, [("ckpt_20.pt", "all ranks"), ("ckpt_10.pt", "all ranks")]),
    ("torch-single-file/killed", "ddp", None, None, [("ckpt_20.pt", "all ranks")]),
]


@pytest.mark.parametrize(("sample", "framework", "pick", "step", "tracker"), COMPLETE)
def test_complete(sample, framework, pick, step, tracker):
    found = probed(samples() / sample, framework)
    assert (found.pick, found.step, found.tracker, found.rejected) == (pick, step, tracker, [])
    assert str(found.pick) in found.reason


@pytest.mark.attack(12)
@pytest.mark.parametrize(("sample", "framework", "pick", "step", "rejected"), INTERRUPTED)
def test_interrupted(sample, framework, pick, step, rejected):
    found = probed(samples() / sample, framework)
    assert (found.pick, found.step) == (pick, step)
    said = dict(found.rejected)
    assert sorted(said) == sorted(name for name, _ in rejected)
    assert all(part in said[name] for name, part in rejected)
    assert pick is not None or "from zero" in found.reason


def test_no_sample_is_left_out():
    listed = {row[0] for row in (*COMPLETE, *INTERRUPTED)} | {"safetensors/killed"}
    files = {str(path.relative_to(samples())) for path in samples().glob("*/**/*") if path.is_file()}
    assert [file for file in sorted(files) if not any(file.startswith(f"{tree}/") for tree in listed)] == [
        "layout-only/README"
    ]


def test_a_temporary_file_of_safetensors_has_its_whole_size():
    found = probed(samples() / "safetensors/killed", "ddp")
    assert found.pick is None and "temporary" in found.rejected[0][1]


@pytest.mark.parametrize("row", [row[:3] for row in (*COMPLETE, *INTERRUPTED)], ids=lambda row: row[0])
def test_the_twin_in_memory_sees_the_same(row):
    sample, framework, pick = row
    assert probe(in_memory(samples() / sample), framework).pick == pick


def test_only_the_own_framework_s_layout_counts():
    assert probed(samples() / "deepspeed-zero2/complete", "megatron").pick is None
    assert probed(samples() / "deepspeed-zero2/complete", "fsdp").pick is None
    assert probed(samples() / "tensorflow-mwms/complete", "jax").pick is None
