"""What counts as a candidate, and which one is the newest."""

import json
import os

import pytest

from schemas.rules.checkpoints.names import is_single_name, is_temporary, shown, step_of
from tests.unit.checkpoints.tiny import lightning_file
from tests.unit.checkpoints.trees import copied, probed, samples, why


def own(path, step, data=b"weights"):
    """As the trainers in scripts/examples save, without the rename."""
    path.mkdir(parents=True)
    (path / "state.bin").write_bytes(data)
    (path / "meta.json").write_text(json.dumps({"step": step}))


@pytest.mark.parametrize(
    ("name", "number", "step"),
    [
        ("step-20", 20, 20),
        ("step_00020", 20, 20),
        ("step20", 20, 20),
        ("global_step20", 20, 20),
        ("checkpoint-20", 20, 20),
        ("iter_0000020", 20, 20),
        ("dist_step_20", 20, 20),
        ("my.run-step=20", 20, 20),
        ("modèle-step-20", 20, 20),
        ("0000000020", 20, 20),
        ("epoch=3-step=20.ckpt", 20, 20),
        ("checkpoint_3", 3, None),
        ("epoch_3", 3, None),
    ],
)
def test_names_with_a_step(name, number, step):
    order = step_of(name)
    assert order is not None and (order.number, order.step) == (number, step)


@pytest.mark.parametrize(
    "name",
    [
        *"step- step-x step-20.tmp xstep20y step-20-old best step-٢٠ ../step-20 step-0x10 -step-5 step-1e3".split(" "),
        *"٢٠ 20.5 20-21 -20 20k".split(" "),
        *("step-20\n", "step-" + "9" * 30, "", "tb_logs", "step -20", "steps-20"),
    ],
)
def test_names_without(name):
    assert step_of(name) is None


def test_the_number_decides(tmp_path):
    """Neither the text order of names nor times (litgpt#661)."""
    for step in (900, 1000, 100):
        own(tmp_path / f"step-{step}", step)
    os.utime(tmp_path / "step-1000", (1, 1))
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step) == ("step-1000", 1000)
    assert "was written later" in found.reason, "a directory used twice is worth a word"


@pytest.mark.attack(12)
@pytest.mark.parametrize(
    "name", [".tmpIm0jo3", ".tmp-step-20-4711", "step-20.tmp", "tmp-checkpoint-20", "step-20.inprogress"]
)
def test_temporary_names(tmp_path, name):
    assert is_temporary(name)
    own(tmp_path / name, 20)
    own(tmp_path / "step-10", 10)
    found = probed(tmp_path, "ddp")
    assert found.pick == "step-10" and "temporary" in why(found, name)


@pytest.mark.parametrize("text", ["..", ".", "", "a/b", "/a", "a\\b", "a\0", "a\n", "\x1b[2J", "a" * 256])
def test_no_single_names(text):
    assert not is_single_name(text)


def test_what_only_looks_like_a_checkpoint(tmp_path):
    own(tmp_path / "step-1", 1)
    (tmp_path / "step-2").write_text("a file")
    (tmp_path / "step-3").symlink_to(tmp_path / "step-1")
    os.mkfifo(tmp_path / "step-4")
    (tmp_path / "step-5").mkdir()
    found = probed(tmp_path, "ddp")
    assert found.pick == "step-1"
    assert "is a file" in why(found, "step-2") and "outside the volume" in why(found, "step-3")
    assert "pipe" in why(found, "step-4") and why(found, "step-5") == "is empty"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"model.bin": b"x", "meta.json": b'{"step": 6}'}, "meta.json is of step 6"),
        ({"model.bin": b"", "meta.json": b'{"step": 7}'}, "model.bin is empty"),
        ({"model.dat": b"", "meta.json": b'{"step": 7}'}, "model.dat is empty"),
        ({"meta.json": b'{"step": 7}'}, "nothing but its marker"),
        ({".complete": b""}, "nothing but its marker"),
        ({"model.npz": b"PK\x03\x04 half", "meta.json": b'{"step": 7}'}, "is cut short"),
        ({"model.safetensors.index.json": b'{"weight_map": {"w": "m.bin"}}', "m.bin": b"x"}, "weights only"),
    ],
)
def test_a_script_s_own_directory_has_to_say_that_it_is_finished(tmp_path, files, said):
    place = tmp_path / "step-7"
    place.mkdir()
    for name, data in files.items():
        (place / name).write_bytes(data)
    found = probed(tmp_path, "ddp")
    assert found.pick is None and said in why(found, "step-7")


@pytest.mark.attack(12)
def test_a_directory_that_got_its_name_by_rename(tmp_path):
    """The name is the evidence; and nothing may be missing that the one before it had."""
    for step in (9, 10):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "weights").write_bytes(b"x")
    assert probed(tmp_path, "ddp").pick == "step-10"
    (tmp_path / "step-9" / "optimizer").write_bytes(b"x")
    found = probed(tmp_path, "ddp")
    assert found.pick == "step-9" and "optimizer missing, which step-9 before it has" in why(found, "step-10")


def test_an_unfinished_one_before_does_not_hold_back_the_next(tmp_path):
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    (tree / "step-10" / ".metadata").unlink()
    (tree / "step-10" / "__7_0.distcp").touch()
    assert probed(tree, "fsdp").pick == "step-20"


def test_the_marker_of_a_script(tmp_path):
    place = tmp_path / "step_7"
    place.mkdir()
    (place / "model.dat").write_bytes(b"x")
    assert "nothing in it tells that it was written to the end" in why(probed(tmp_path, "ddp"), "step_7")
    (place / ".complete").touch()
    assert probed(tmp_path, "ddp").pick == "step_7"
    os.utime(place / ".complete", (1, 1))
    assert "newer than .complete" in why(probed(tmp_path, "ddp"), "step_7")


def test_a_loose_file_counts_with_its_marker(tmp_path):
    tree = copied("torch-single-file/complete", tmp_path)
    (tree / "ckpt_20.pt.complete").touch()
    assert (probed(tree, "ddp").pick, probed(tree, "ddp").step) == ("ckpt_20.pt", 20)
    os.truncate(tree / "ckpt_20.pt", 4000)
    assert "is missing" in why(probed(tree, "ddp"), "ckpt_20.pt")


@pytest.mark.parametrize(
    ("framework", "names"),
    [
        ("ddp", ["ckpt.pt"]),
        ("ddp", ["checkpoint_last.pt", "checkpoint_best.pt"]),
        ("fsdp", ["last.pth.tar", "model_best.pth.tar"]),
        ("paddle", ["1000.pdparams"]),
    ],
)
def test_loose_files_without_a_step_are_named_where_nothing_else_is(tmp_path, framework, names):
    for name in names:
        (tmp_path / name).write_bytes((samples() / "torch-single-file/complete/ckpt_20.pt").read_bytes())
    found = probed(tmp_path, framework)
    assert found.pick is None and all(name in found.reason for name in names) and "from zero" in found.reason
    own(tmp_path / "checkpoints" / "step-5", 5)
    assert names[0] not in probed(tmp_path, framework).reason
    # By another rule of the same framework.
    (tmp_path / "checkpoints").rename(tmp_path / "global_step5")
    assert names[0] not in probed(tmp_path, "deepspeed").reason


def test_the_classic_end_of_a_loose_file(tmp_path):
    whole = (samples() / "torch-single-file/complete/ckpt_20.pt").read_bytes()
    (tmp_path / "checkpoint-12.pth.tar").write_bytes(whole)
    assert "all ranks" in why(probed(tmp_path, "ddp"), "checkpoint-12.pth.tar")
    (tmp_path / "checkpoint-12.pth.tar.complete").touch()
    assert (probed(tmp_path, "ddp").pick, probed(tmp_path, "ddp").step) == ("checkpoint-12.pth.tar", 12)


def test_a_last_of_lightning_that_tells_no_step_is_nothing(tmp_path):
    whole = (samples() / "torch-single-file/complete/ckpt_20.pt").read_bytes()
    for name in ("epoch=0-step=20.ckpt", "epoch=0-step=20-v1.ckpt", "epoch=1-step=30.ckpt", "last.ckpt", "best.ckpt"):
        (tmp_path / name).write_bytes(whole)
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step) == ("epoch=1-step=30.ckpt", 30) and "tells a step" in why(found, "best.ckpt")
    os.truncate(tmp_path / "epoch=1-step=30.ckpt", len(whole) - 1)
    assert probed(tmp_path, "ddp").pick == "epoch=0-step=20-v1.ckpt"


def test_only_the_known_directories_one_level_down(tmp_path):
    own(tmp_path / "checkpoints" / "step-5", 5)
    own(tmp_path / "other-tenant" / "step-9", 9)
    own(tmp_path / "checkpoints" / "deeper" / "step-9", 9)
    (tmp_path / "ckpts").symlink_to(tmp_path / "other-tenant")
    assert probed(tmp_path, "fsdp").pick == "checkpoints/step-5"


@pytest.mark.attack(3)
def test_links_into_another_tenant_s_directory(tmp_path):
    """mlflow#18964: a directory that is a link, and a file in a real directory that is one."""
    tree = copied("hf-trainer/complete", tmp_path)
    other = copied("hf-trainer/complete", tmp_path / "other")
    (tree / "checkpoint-900").symlink_to(other / "checkpoint-20")
    (tree / "checkpoint-20" / "model.safetensors").unlink()
    (tree / "checkpoint-20" / "model.safetensors").symlink_to(other / "checkpoint-20" / "model.safetensors")
    found = probed(tree, "ddp")
    assert found.pick == "checkpoint-10"
    assert all("outside the volume" in why(found, name) for name in ("checkpoint-900", "checkpoint-20"))


@pytest.mark.parametrize("world", ["nothing", "empty"])
def test_nothing_to_resume_from(tmp_path, world):
    if world == "empty":
        (tmp_path / "tb_logs").mkdir()
    found = probed(tmp_path, "ddp")
    assert (found.pick, found.step, found.rejected) == (None, None, [])
    assert found.reason == "there is no checkpoint here; training starts from zero"


@pytest.mark.attack(1, 48)
@pytest.mark.parametrize("odd", ["\n", "\x1b[2J", "\u202e", "\udcff", "\\", "\x7f"])
@pytest.mark.parametrize(
    ("sample", "framework", "old", "new"),
    [
        ("layout-only/lightning-fsdp-sharded/complete", "fsdp", "epoch=0-step=20.ckpt", "a{}-step=20.ckpt"),
        ("tensorflow-mwms/complete", "tensorflow", "ckpt-60.index", "ckpt{}-60.index"),
        ("torch-single-file/complete", "ddp", "ckpt_20.pt", "last{}.ckpt"),
        ("megatron-torch_dist/complete", "megatron", "iter_0000020", "a{}-step=20"),
        ("hf-trainer/complete", "ddp", "checkpoint-20", "a{}-checkpoint-20"),
        ("orbax/complete", "jax", "20", "a{}_20"),
    ],
)
def test_no_pick_has_a_name_that_a_rank_cannot_be_told(tmp_path, sample, framework, old, new, odd):
    tree = copied(sample, tmp_path)
    (tree / old).rename(tree / new.format(odd))
    if sample.startswith("torch-single"):
        (tree / new.format(odd)).write_bytes(lightning_file(20))
    found = probed(tree, framework)
    assert found.pick is None or is_single_name(found.pick)
    assert all(name.isprintable() and why.isprintable() for name, why in found.rejected) and found.reason.isprintable()


@pytest.mark.parametrize(
    ("sample", "framework", "old", "new"),
    [
        ("layout-only/lightning-fsdp-sharded/complete", "fsdp", "epoch=0-step=20.ckpt", "époque=0-step=20.ckpt"),
        ("tensorflow-mwms/complete", "tensorflow", "ckpt-", "modèle-"),
        ("hf-trainer/complete", "ddp", "checkpoint-", "模型-checkpoint-"),
        ("orbax/complete", "jax", "", "模型_"),
    ],
)
def test_letters_of_any_script_before_the_step(tmp_path, sample, framework, old, new):
    tree = copied(sample, tmp_path)
    before = probed(tree, framework)
    for path in [*tree.iterdir()]:
        if path.name.startswith(old):
            path.rename(tree / path.name.replace(old, new, 1))
    found = probed(tree, framework)
    assert (found.pick, found.step) == (str(before.pick).replace(old, new, 1), before.step)


@pytest.mark.attack(48)
def test_any_bytes_of_a_name_can_be_shown():
    assert shown("a\udcff\x1b[2J\u202e") == "a\\xff\\x1b[2J\\u202e"


def test_keras_is_told_to_count_epochs(tmp_path):
    tree = copied("tensorflow-mwms/complete", tmp_path)
    for name in sorted(os.listdir(tree)):
        for stem, epoch in (("ckpt-50.", "cp-0009.ckpt."), ("ckpt-60.", "cp-0010.ckpt.")):
            if name.startswith(stem):
                (tree / name).rename(tree / name.replace(stem, epoch))
        if name.startswith("ckpt-") and (tree / name).exists():
            (tree / name).unlink()
    found = probed(tree, "tensorflow")
    assert (found.pick, found.step) == ("cp-0010.ckpt", None)
    os.truncate(tree / "cp-0010.ckpt.index", 40)
    found = probed(tree, "tensorflow")
    assert found.pick == "cp-0009.ckpt" and "cp-0010.ckpt.index: the index is cut short" in why(found, "cp-0010.ckpt")
