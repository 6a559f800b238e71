"""Layouts that trainers of users have: weights in modules, adapters by name, what is written last, exports beside."""

import json
import os
import shutil

import pytest

from schemas.rules.checkpoints.retention import plan_retention
from tests.unit.checkpoints.tiny import SAFETENSORS, dcp_files, put, torch_file
from tests.unit.checkpoints.trees import in_memory, probed, why

TORCH = torch_file()


def state(step, **more):
    return json.dumps({"global_step": step, "log_history": []} | more, indent=2).encode()


def trainer(step, **files):
    """What HF Trainer writes, in its order; files: others, before the optimizer."""
    return {
        **files,
        "training_args.bin": TORCH,
        "optimizer.pt": TORCH,
        "scheduler.pt": TORCH,
        "rng_state.pth": TORCH,
        "trainer_state.json": state(step),
    }


def accelerate(*more, last=()):
    """more, last: names before and after the random states."""
    files = ("optimizer.bin", "scheduler.bin", *more, "random_states_0.pkl", *last)
    weights = {name: SAFETENSORS for name in ("model.safetensors", *more) if name.endswith(".safetensors")}
    return weights | {name: TORCH for name in files if name not in weights}


ADAPTERS = {
    f"{name}/{file}": data
    for name in ("sql", "chat")
    for file, data in (("adapter_model.safetensors", SAFETENSORS), ("adapter_config.json", b"{}"))
}
SHARDED = {
    "model-00001-of-00002.safetensors": SAFETENSORS,
    "model-00002-of-00002.safetensors": SAFETENSORS,
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {str(at): f"model-0000{at}-of-00002.safetensors" for at in (1, 2)}}
    ).encode(),
}
MODEL = {"model.safetensors": SAFETENSORS, "config.json": b'{"a": 1}\n'}
DIFFUSERS = {
    "unet/diffusion_pytorch_model.safetensors": SAFETENSORS,
    "unet/config.json": b"{}",
    "optimizer.bin": TORCH,
    "scheduler.bin": TORCH,
    "random_states_0.pkl": TORCH,
}


@pytest.mark.parametrize(
    "files",
    [
        trainer(20, **ADAPTERS),
        trainer(20, **SHARDED),
        trainer(20, **{"0_Transformer/model.safetensors": SAFETENSORS, "modules.json": b"[]"}),
        trainer(20, **{"value_head.bin": TORCH}),
        DIFFUSERS,
        accelerate(last=["custom_checkpoint_0.pkl"]),
        accelerate("sampler.bin", "optimizer_1.bin", "model_1.safetensors"),
        {"pytorch_model_fsdp.bin": TORCH, "optimizer.bin": TORCH, "random_states_0.pkl": TORCH},
    ],
)
def test_whole(tmp_path, files):
    put(tmp_path / "checkpoint-20", files)
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step, found.rejected) == ("checkpoint-20", 20, [])


def gone(path):
    path.unlink()


def halved(path):
    before = path.stat()
    os.truncate(path, before.st_size // 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def later(path):
    os.utime(path, (2_000, 2_000))


@pytest.mark.attack(12)
@pytest.mark.parametrize(
    ("files", "file", "act", "said"),
    [
        (trainer(20, **ADAPTERS), "sql/adapter_model.safetensors", gone, "sql: adapter_model.safetensors is missing"),
        (trainer(20, **ADAPTERS), "sql/adapter_config.json", gone, "sql: adapter_config.json is missing"),
        (trainer(20, **ADAPTERS), "chat/adapter_config.json", halved, "chat: adapter_config.json is no whole JSON"),
        (trainer(20, **ADAPTERS), "chat/adapter_model.safetensors", halved, "chat: adapter_model.safetensors has"),
        (trainer(20, **ADAPTERS), "chat/adapter_model.safetensors", later, "chat/adapter_model.safetensors is newer"),
        (trainer(20, **SHARDED), "model.safetensors.index.json", gone, "model.safetensors.index.json is missing"),
        (
            trainer(20, **SHARDED),
            "model-00002-of-00002.safetensors",
            later,
            "00002.safetensors is newer",
        ),
        (trainer(20, **MODEL), "config.json", halved, "config.json is no whole JSON"),
        (trainer(20, **MODEL), "model.safetensors", gone, "has no model file"),
        (trainer(20, **MODEL), "scheduler.pt", gone, "scheduler.pt missing, which checkpoint-10 before it has"),
        (DIFFUSERS, "unet/diffusion_pytorch_model.safetensors", gone, "has no model file"),
        (DIFFUSERS, "unet/diffusion_pytorch_model.safetensors", halved, "unet: diffusion_pytorch_model.safetensors"),
        (DIFFUSERS, "unet/diffusion_pytorch_model.safetensors", later, "touch random_states_0.pkl"),
        (DIFFUSERS, "random_states_0.pkl", halved, "random_states_0.pkl is cut short"),
        (DIFFUSERS, "scheduler.bin", gone, "scheduler.bin missing, which checkpoint-10 before it has"),
        (accelerate(), "optimizer.bin", later, "optimizer.bin is newer than random_states_0.pkl"),
        (accelerate(last=["custom_checkpoint_0.pkl"]), "custom_checkpoint_0.pkl", gone, "custom_checkpoint_0.pkl"),
        (accelerate(last=["custom_checkpoint_0.pkl"]), "custom_checkpoint_0.pkl", halved, "is cut short"),
        (
            accelerate("model_1.safetensors"),
            "model_1.safetensors",
            gone,
            "model_1.safetensors missing",
        ),
    ],
)
def test_one_thing_wrong(tmp_path, files, file, act, said):
    put(tmp_path / "checkpoint-20", files)
    older = files | ({"trainer_state.json": state(10)} if "trainer_state.json" in files else {})
    put(tmp_path / "checkpoint-10", older)
    assert probed(tmp_path, "ddp").pick == "checkpoint-20"
    act(tmp_path / "checkpoint-20" / file)
    found = probed(tmp_path, "ddp")
    assert found.pick == "checkpoint-10" and said in why(found, "checkpoint-20")


def test_an_export_beside_sharded_parts_may_be_newer(tmp_path):
    """zero_to_fp32.py and merges write weights into a checkpoint at any time; a resume does not read them."""
    parts = {
        f"{part}_0/{name}": data
        for part in ("pytorch_model_fsdp", "optimizer")
        for name, data in dcp_files("__0_0.distcp").items()
    }
    put(tmp_path / "checkpoint-20", trainer(20, **parts))
    put(tmp_path / "checkpoint-20", {"merged/notes.txt": b"x"})
    (tmp_path / "checkpoint-20" / "pytorch_model.bin").write_bytes(TORCH)
    assert probed(tmp_path, "fsdp").pick == "checkpoint-20"
    later(tmp_path / "checkpoint-20" / "pytorch_model_fsdp_0" / ".metadata")
    found = probed(tmp_path, "fsdp")
    assert "pytorch_model_fsdp_0/.metadata is newer than trainer_state.json" in why(found, "checkpoint-20")


def test_an_export_of_another_name_may_be_newer(tmp_path):
    put(tmp_path / "checkpoint-20", trainer(20, **MODEL))
    (tmp_path / "checkpoint-20" / "merged-fp16.safetensors").write_bytes(SAFETENSORS)
    assert probed(tmp_path, "ddp").pick == "checkpoint-20"


@pytest.mark.parametrize("end", [b"\n}", b"\n}\n", b"\n  "])
def test_a_state_with_a_line_for_each_of_many_steps(tmp_path, monkeypatch, end):
    """Larger than is read: its beginning tells the step and the best one, its end that it is whole."""
    monkeypatch.setattr("schemas.rules.checkpoints.trainer.JSON_MAX", 100)
    monkeypatch.setattr("schemas.rules.checkpoints.whole_files.JSON_MAX", 100)
    whole = state(20, best_model_checkpoint="out/checkpoint-5", z=["x" * 40] * 3)
    for step in (5, 10, 20):
        put(tmp_path / f"checkpoint-{step}", trainer(step, **MODEL))
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_bytes(whole.removesuffix(b"\n}") + end)
    found = probed(tmp_path, "ddp")
    if end.strip() != b"}":
        assert found.pick == "checkpoint-10" and "more than the 100 that are read" in why(found, "checkpoint-20")
        return
    assert found.pick == "checkpoint-20"
    plan = plan_retention(in_memory(tmp_path), "ddp", 1)
    assert [path for path, _ in plan.remove] == ["checkpoint-10"], "what the large state calls its best stays"
    shutil.move(tmp_path / "checkpoint-20", tmp_path / "checkpoint-30")
    assert "is of step 20, the name says 30" in why(probed(tmp_path, "ddp"), "checkpoint-30")


def test_parts_below_a_name_that_is_right(tmp_path):
    """`step-N/model` and `step-N/optim` as distributed checkpoints, saved in place one after the other."""
    for step in (10, 20):
        for part in ("model", "optim"):
            put(tmp_path / f"step-{step}" / part, dcp_files("__0_0.distcp", "__1_0.distcp"))
    assert probed(tmp_path, "fsdp").pick == "step-20"
    optim = tmp_path / "step-20" / "optim"
    os.truncate(optim / "__1_0.distcp", 3)
    os.utime(optim / "__1_0.distcp", (1, 1))
    assert "optim: __1_0.distcp is cut short" in why(probed(tmp_path, "fsdp"), "step-20")
    (optim / ".metadata").unlink()
    found = probed(tmp_path, "fsdp")
    assert found.pick == "step-10" and "optim: .metadata, which is written when all" in why(found, "step-20")


def test_files_below_a_marker(tmp_path):
    put(tmp_path / "step_7", {"model/w.pt": TORCH, "rank/0/s.pt": TORCH, "_SUCCESS": b"", ".complete": b""})
    assert probed(tmp_path, "ddp").pick == "step_7"
    os.utime(tmp_path / "step_7" / "rank" / "0" / "s.pt", (3_000, 3_000))
    assert "rank/0/s.pt is newer than .complete" in why(probed(tmp_path, "ddp"), "step_7")
    halved(tmp_path / "step_7" / "rank" / "0" / "s.pt")
    assert "rank/0: s.pt is cut short" in why(probed(tmp_path, "ddp"), "step_7")


def test_what_a_kill_left_is_no_measure_of_the_next(tmp_path):
    """Killed once in the middle, and once before the objects of the user's own: the last whole one is the measure."""
    whole = accelerate(last=["custom_checkpoint_0.pkl"])
    put(tmp_path / "step_10", whole)
    put(tmp_path / "step_20", {"model.safetensors": SAFETENSORS})
    put(tmp_path / "step_30", accelerate())
    found = probed(tmp_path, "ddp")
    assert found.pick == "step_10" and "custom_checkpoint_0.pkl missing, which step_10" in why(found, "step_30")


@pytest.mark.parametrize(("world", "pick"), [(1, "checkpoint-20"), (2, "checkpoint-10"), (None, "checkpoint-10")])
def test_the_world_is_known_to_have_become_one(tmp_path, world, pick):
    """One process saves rng_state.pth without a number; what else is missing is told whatever the world is."""
    ranks = {"rng_state_0.pth": TORCH, "rng_state_1.pth": TORCH}
    put(tmp_path / "checkpoint-10", ranks | trainer(10, **MODEL))
    put(tmp_path / "checkpoint-20", trainer(20, **MODEL))
    if world is not None:
        put(tmp_path / ".heteroflow", {"run-1.json": json.dumps({"world": world}).encode()})
    assert probed(tmp_path, "ddp").pick == pick
    if world == 1:
        (tmp_path / "checkpoint-20" / "scheduler.pt").unlink()
        assert "scheduler.pt missing" in why(probed(tmp_path, "ddp"), "checkpoint-20")


@pytest.mark.attack(12)
@pytest.mark.parametrize(
    "name",
    [
        ".model.safetensors.aB3dE6",
        "..metadata.Zz09aB",
        "optimizer.pt.6eA7c1d9",
        "scheduler.pt_.gstmp",
        "optimizer.pt.aB3dE6c8.partial",
    ],
)
def test_a_copy_that_is_under_way(tmp_path, name):
    """rsync, aws s3 cp, gsutil and rclone write under a name of their own, and rename."""
    put(tmp_path / "checkpoint-20", trainer(20, **MODEL))
    put(tmp_path / "checkpoint-20", {name: b"half"})
    assert "temporary file" in why(probed(tmp_path, "ddp"), "checkpoint-20")


@pytest.mark.parametrize("name", [".config.backup", "notes.backup", "model.json.txt", "model-00001.bin", "a.pt.old"])
def test_what_is_no_copy_under_way(tmp_path, name):
    put(tmp_path / "checkpoint-20", trainer(20, **MODEL))
    put(tmp_path / "checkpoint-20", {name: TORCH})
    os.utime(tmp_path / "checkpoint-20" / name, (1, 1))
    assert probed(tmp_path, "ddp").pick == "checkpoint-20"


def test_composer_counts_batches(tmp_path):
    for batch in (9_000, 10_000_000):
        put(tmp_path / f"ep1-ba{batch}", dcp_files("__0_0.distcp"))
    assert (probed(tmp_path, "fsdp").pick, probed(tmp_path, "fsdp").step) == ("ep1-ba10000000", 10_000_000)
