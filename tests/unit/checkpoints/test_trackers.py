"""Trackers are written early, by anyone who can write the directory: read with bounds, never followed, no evidence."""

import os
import shutil

import pytest

from tests.unit.checkpoints.trees import copied, probed, why

ZERO3, LEGACY, DIST = (
    "layout-only/deepspeed-zero3/complete",
    "layout-only/megatron-legacy-torch/complete",
    "megatron-torch_dist/complete",
)


@pytest.mark.attack(1, 12)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"../../other-tenant/global_step9", "no single name"),
        (b"/etc", "no single name"),
        (b"..", "no single name"),
        (b"global_step9\0", "no single name"),
        (b"\x1b]0;owned\x07", "no single name"),
        (b"", "is empty"),
        (b"g" * 5000, "more than 4096 bytes"),
        (b"\xff\xfe", "no single name"),
    ],
)
def test_a_hostile_latest_is_rejected_and_the_complete_one_picked(tmp_path, text, said):
    tree = copied(ZERO3, tmp_path)
    (tree / "latest").write_bytes(text)
    found = probed(tree, "deepspeed")
    assert found.pick == "global_step100" and said in why(found, "latest")
    assert all(text.isprintable() for row in (*found.rejected, (found.tracker or "", found.reason)) for text in row)


@pytest.mark.attack(3, 6)
def test_a_latest_that_is_a_link_or_a_pipe(tmp_path):
    tree = copied(ZERO3, tmp_path)
    (tree / "latest").unlink()
    (tree / "latest").symlink_to("/etc/hostname")
    found = probed(tree, "deepspeed")
    assert found.pick == "global_step100" and found.tracker is None and "symbolic link" in why(found, "latest")
    (tree / "latest").unlink()
    os.mkfifo(tree / "latest")
    assert "pipe" in why(probed(tree, "deepspeed"), "latest")


@pytest.mark.attack(12)
def test_latest_ahead_of_the_data(tmp_path):
    """Rank 0 has moved `latest`, the part of rank 1 is not there yet or cut short: measured with a killed rank."""
    tree = copied("deepspeed-zero2/complete", tmp_path)
    torn = tree / "global_step20" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    os.truncate(torn, 4000)
    assert probed(tree, "deepspeed").pick == "global_step10"
    torn.unlink()
    found = probed(tree, "deepspeed")
    assert found.pick == "global_step10" and found.tracker == "global_step20"


def test_latest_behind_a_complete_one(tmp_path):
    tree = copied("deepspeed-zero2/complete", tmp_path)
    (tree / "latest").write_text("global_step10")
    assert probed(tree, "deepspeed").pick == "global_step20"
    (tree / "global_step20" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert probed(tree, "deepspeed").pick == "global_step10"


def test_what_two_layouts_reject_is_said_once(tmp_path):
    tree = copied(ZERO3, tmp_path)
    (tree / "global_step200.tmp").mkdir()
    assert [name for name, _ in probed(tree, "deepspeed").rejected] == ["global_step200.tmp"]


def test_a_tag_of_the_script_s_own(tmp_path):
    tree = copied(ZERO3, tmp_path)
    (tree / "global_step100").rename(tree / "best")
    (tree / "latest").write_text("best\n")
    found = probed(tree, "deepspeed")
    assert (found.pick, found.step) == ("best", None)


def test_two_trackers_that_disagree(tmp_path):
    """Only the tracker of the declared framework is read (Megatron-DeepSpeed#159)."""
    tree = copied(ZERO3, tmp_path)
    (tree / "global_step100").rename(tree / "global_step500")
    (tree / "latest").write_text("global_step500")
    shutil.copytree(copied(LEGACY, tmp_path / "other") / "iter_0000500", tree / "iter_0000300")
    (tree / "latest_checkpointed_iteration.txt").write_text("300")
    assert (probed(tree, "deepspeed").pick, probed(tree, "deepspeed").tracker) == ("global_step500", "global_step500")
    assert (probed(tree, "megatron").pick, probed(tree, "megatron").tracker) == ("iter_0000300", "300")
    shutil.rmtree(tree / "iter_0000300" / "mp_rank_00")
    found = probed(tree, "megatron")
    assert found.pick is None and "from zero" in found.reason


@pytest.mark.parametrize("text", ["", "garbage", "-5", "1e3", "²", "9" * 30, "../20"])
def test_a_garbled_tracker_of_megatron(tmp_path, text):
    """The format with evidence of its own is still told; the other is not, and Megatron's own behaviour is said."""
    tree = copied(DIST, tmp_path)
    (tree / "latest_checkpointed_iteration.txt").write_text(text)
    found = probed(tree, "megatron")
    assert found.pick == "iter_0000020" and "exit code 0" in found.reason
    assert why(found, "latest_checkpointed_iteration.txt")
    tree = copied(LEGACY, tmp_path / "legacy")
    (tree / "latest_checkpointed_iteration.txt").write_text(text)
    found = probed(tree, "megatron")
    assert found.pick is None and "only latest_checkpointed_iteration.txt tells" in why(found, "iter_0001000")


def test_a_tracker_that_names_what_is_gone(tmp_path):
    tree = copied(DIST, tmp_path)
    shutil.rmtree(tree / "iter_0000020")
    found = probed(tree, "megatron")
    assert found.pick == "iter_0000010" and "names it, but it is not here" in why(found, "iter_0000020")


@pytest.mark.parametrize("text", ["1", "5", "30"])
def test_a_tracker_that_names_what_is_gone_holds_nothing_back_that_has_its_own_evidence(tmp_path, text):
    """Cut short, or of one that was removed since."""
    tree = copied(DIST, tmp_path)
    (tree / "latest_checkpointed_iteration.txt").write_text(text)
    found = probed(tree, "megatron")
    assert (found.pick, found.tracker) == ("iter_0000020", text) and "until latest_" in found.reason
    (tree / "iter_0000020" / "metadata.json").unlink()
    assert probed(tree, "megatron").pick == "iter_0000010"
    tree = copied(LEGACY, tmp_path / "legacy")
    (tree / "latest_checkpointed_iteration.txt").write_text(text)
    found = probed(tree, "megatron")
    assert found.pick is None and "only latest_checkpointed_iteration.txt tells" in why(found, "iter_0001000")


NEMO = "gpt--reduced_train_loss=9.43-step={}-consumed_samples={}.0"


@pytest.mark.parametrize("form", [NEMO, f"{NEMO}-last", f"{NEMO}.ckpt"])
@pytest.mark.parametrize("below", ["", "weights"])
def test_nemo_has_its_own_names_and_says_what_is_not_finished(tmp_path, form, below):
    tree = copied(DIST, tmp_path / "megatron")
    root = tmp_path / "nemo"
    names = {step: form.format(step, step * 8) for step in (10, 20)}
    for step, name in names.items():
        (root / name).mkdir(parents=True)
        (root / name / "context").mkdir()
        shutil.copytree(tree / f"iter_{step:07}", root / name / below, dirs_exist_ok=True)
    found = probed(root, "megatron")
    assert (found.pick, found.step, found.rejected) == (names[20], 20, [])
    unfinished = root / f"{names[20].removesuffix('.ckpt')}-unfinished"
    unfinished.touch()
    found = probed(root, "megatron")
    assert found.pick == names[10] and unfinished.name in why(found, names[20])
    unfinished.unlink()
    for torn in ("metadata.json", ".metadata"):
        os.truncate(root / names[20] / below / torn, 5)
        found = probed(root, "megatron")
        assert found.pick == names[10] and torn in why(found, names[20])


@pytest.mark.parametrize("text", ['model_checkpoint_path: "/other/container/ckpt-60"\n', "garbage", ""])
def test_the_record_of_tensorflow_is_shown_and_not_followed(tmp_path, text):
    tree = copied("tensorflow-mwms/complete", tmp_path)
    (tree / "checkpoint").write_text(text)
    found = probed(tree, "tensorflow")
    assert found.pick == "ckpt-60" and found.tracker == ("/other/container/ckpt-60" if "other" in text else None)
    assert "`checkpoint`" in found.reason


def test_the_world_by_the_manifest_or_the_caller(tmp_path):
    tree = copied("deepspeed-zero2/complete", tmp_path)
    assert probed(tree, "deepspeed", world=2).pick == "global_step20"
    found = probed(tree, "deepspeed", world=4)
    assert found.pick is None and "holds the parts of 2 ranks, 4 wrote it" in why(found, "global_step20")
    for step in ("global_step10", "global_step20"):
        (tree / step / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert probed(tree, "deepspeed").pick == "global_step20", "nobody knows better"
    runs = tree / ".heteroflow"
    runs.mkdir()
    (runs / "run-1.json").write_text('{"world": 2}')
    (runs / "run-2.json").write_text('{"world": 1}')
    os.utime(runs / "run-1.json", (1, 1))
    assert probed(tree, "deepspeed").pick is None, "the run that began before the files were written counts"
    os.utime(runs / "run-2.json", (2, 2))
    assert probed(tree, "deepspeed").pick == "global_step20"
