"""What is said of a checkpoint that a document names by its path, of every layout that is known."""

import os
import shutil

import pytest

from agentd.checkpoints.fenced import open_fenced
from schemas.rules.checkpoints.named import NamedSight, named_sight
from schemas.rules.checkpoints.probe import probe
from tests.unit.checkpoints.trees import copied, samples

FRAMEWORKS = ("ddp", "fsdp", "deepspeed", "megatron", "tensorflow", "paddle", "jax")


def picked(tree, framework):
    with open_fenced(os.path.realpath(tree)) as root:
        return probe(root, framework)


COMPLETE = [
    (at.parent.name, framework)
    for at in sorted(samples().glob("*/complete"))
    for framework in FRAMEWORKS
    if picked(at, framework).pick is not None
]


def seen(tree, name, framework) -> NamedSight:
    place, _, last = name.rpartition("/")
    with open_fenced(os.path.realpath(tree / place)) as root:
        return named_sight(root, last, f"/data/{name}", framework)


@pytest.mark.parametrize(("sample", "framework"), COMPLETE)
def test_what_the_probe_picks_may_be_named_and_is_refused_when_a_file_of_it_is_cut_short(tmp_path, sample, framework):
    tree = copied(f"{sample}/complete", tmp_path)
    found = picked(tree, framework)
    assert found.pick is not None
    told = seen(tree, found.pick, framework)
    assert (told.pick, told.code, told.step) == (f"/data/{found.pick}", "", found.step), told
    assert told.text.endswith("is complete")
    copy = shutil.copytree(tree, tmp_path / "elsewhere")
    assert seen(copy, found.pick, framework) == told, "times of another disk are no difference"
    pick = tree / found.pick
    files = sorted(pick.rglob("*")) if pick.is_dir() else [*tree.glob(f"{found.pick}*")]
    largest = max((file for file in files if file.is_file()), key=lambda file: file.stat().st_size)
    largest.write_bytes(b"")
    broken = seen(tree, found.pick, framework)
    assert (broken.pick, broken.code, broken.step) == ("", "resume_incomplete", None), broken
    assert "is not complete there: " in broken.text and broken.digest != told.digest


def test_a_sample_of_each_framework_is_tried():
    assert {framework for _, framework in COMPLETE} == set(FRAMEWORKS)
