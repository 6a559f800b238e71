"""Directories called by their step alone, or with the end of a file; and what a script saves beside shards."""

import os
import shutil

import pytest

from tests.unit.checkpoints.trees import copied, probed, why

LAYOUTS = [
    ("hf-trainer/complete", "ddp", "checkpoint-10", "checkpoint-20", "trainer_state.json"),
    ("pytorch-fsdp2-dcp/complete", "fsdp", "step-10", "step-20", ".metadata"),
    ("deepspeed-zero2/complete", "deepspeed", "global_step10", "global_step20", "mp_rank_00_model_states.pt"),
    ("paddle/complete", "paddle", "step_10", "step_20", "model.pdopt"),
]
FORMS = ["{}", "{:010}", "ckpts/{}", "modèle-step-{}"]
CASES = [(*layout, form) for layout in LAYOUTS for form in FORMS]
CASES += [(*layout, "{}.pth") for layout in LAYOUTS if layout[1] != "paddle"]


@pytest.mark.parametrize(("sample", "framework", "older", "newer", "torn", "form"), CASES)
def test_a_name_says_the_step_in_many_ways(tmp_path, sample, framework, older, newer, torn, form):
    tree = copied(sample, tmp_path)
    for path in tree.glob("dist_step_*"):
        shutil.rmtree(path)
    (tree / "ckpts").mkdir()
    for name, step in ((older, 10), (newer, 20)):
        (tree / name).rename(tree / form.format(step))
    # Of DeepSpeed: as a run leaves it that ended before it moved its record.
    (tree / "latest").unlink(missing_ok=True)
    found = probed(tree, framework)
    assert (found.pick, found.step) == (form.format(20), 20)
    os.truncate(tree / form.format(20) / torn, 3)
    found = probed(tree, framework)
    assert (found.pick, found.step) == (form.format(10), 10) and torn in why(found, form.format(20))


def test_a_number_alone_is_no_evidence(tmp_path):
    (tmp_path / "1000").mkdir()
    (tmp_path / "1000" / "weights").write_bytes(b"x")
    found = probed(tmp_path, "ddp")
    assert found.pick is None and "nothing in it tells that it was written to the end" in why(found, "1000")


DAMAGES = [(name, damage) for name in ("train_state_00000.json", "loop.pt", "rng.pkl") for damage in ("gone", 0.5, 0)]


@pytest.mark.parametrize(("beside", "left"), [*DAMAGES, (".complete", "gone")])
def test_what_a_script_saves_beside_the_shards_is_part_of_it(tmp_path, beside, left):
    """The last of them is written after `.metadata`."""
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    whole = {".json": b'{"step": 20}', ".pkl": b"\x80\x04}\x94.", "": b""}
    whole[".pt"] = (copied("torch-single-file/complete", tmp_path / "file") / "ckpt_20.pt").read_bytes()
    data = whole[os.path.splitext(beside)[1]]
    for step in (10, 20):
        (tree / f"step-{step}" / beside).write_bytes(data)
    assert probed(tree, "fsdp").pick == "step-20"
    path = tree / "step-20" / beside
    if left == "gone":
        path.unlink()
    else:
        os.truncate(path, int(len(data) * left))
    found = probed(tree, "fsdp")
    assert found.pick == "step-10" and beside in why(found, "step-20")


def test_an_export_beside_older_shards_is_not_missed_in_the_next(tmp_path):
    """Made by hand, some day, of the one that was liked best."""
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    (tree / "step-20" / "pytorch_model.bin").write_bytes(b"PK")
    assert probed(tree, "fsdp").pick == "step-20", "an export that is being written, or was given up"
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (tree / "step-10" / name).write_bytes(b"{}")
    assert probed(tree, "fsdp").pick == "step-20"
