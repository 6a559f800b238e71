"""What is said of a checkpoint that a document names by its path, of every layout that is known."""

import os
import shutil
from typing import Any

import pytest

from agentd.checkpoints.fenced import open_fenced
from mesh.core.state.agreement import disagreement, no_beginning, note_view
from schemas.commands import command, command_refusal
from schemas.limits import TEXT_MAX
from schemas.rules.checkpoints.memory import MemoryDirectory, MemoryFile
from schemas.rules.checkpoints.named import NamedSight, missing, named_sight
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


def test_what_the_nodes_say_of_the_longest_path_fits_a_command():
    path = f"/data/{'x' * 4090}"[:4089] + "/step-5"
    assert len(path) == TEXT_MAX
    trees = [MemoryDirectory({"step-5": MemoryDirectory({"w": MemoryFile(data)})}) for data in (b"a", b"b", b"")]
    told = [*(named_sight(tree, "step-5", path, "ddp") for tree in trees), missing(path)]
    assert [one.code for one in told] == ["", "", "resume_incomplete", "resume_missing"]
    group: dict[str, Any] = {}
    for rank, one in enumerate(told):
        ref = {"group_id": "tg-01kb89t3f89j6ct3adhq", "attempt": 1, "rank": rank, "token": 1, "seq": 1}
        resume = {"path": path, "step": 5, "source": "document"} if one.pick else None
        report = {**ref, "kind": "claimed", "resume": resume, "sees": one.to_dict()}
        assert command_refusal(command("TaskReports", node="n1", uid="u", reports=[report])) is None
        note_view(group, rank, "n" * 63, one.to_dict())
    said = disagreement(group["views"])
    assert said is not None and len(said) < TEXT_MAX
    for words in ("step-5 is complete", "step-5 is not complete there: w is empty", "step-5 does not exist there"):
        assert words in said
    alone = no_beginning(group["views"][2:3])
    assert alone is not None and "w is empty" in alone[1]
