"""What an attempt leaves in its checkpoint directory before it starts."""

import json
import os
import shutil

import pytest

from agentd.checkpoints.run_manifest import KEPT, RunManifests
from tests.unit.checkpoints.trees import copied, probed, why

DOCUMENT = {
    "name": "llama",
    "task_type": "training",
    "training": {"framework": "deepspeed", "n_nodes": 1, "per_node_gpu": 2, "hyper_params": {"lr": "1e-4"}},
    "task": {"command": "deepspeed train.py", "gpu_required": 2, "env": {"WANDB_API_KEY": "S3cr3tS3cr3t"}},
}


def rows(place, token=7, cards=2, rank=0, **training):
    document = {**DOCUMENT, "training": {**DOCUMENT["training"], "per_node_gpu": cards, **training}}
    group = {
        "group_id": "tg-1",
        "name": "llama",
        "task_type": "training",
        "document": document,
        "nodes": ["n1"],
        "attempt": 1,
        "resume": None,
        "checkpoint_path": str(place),
    }
    return {"rank": rank, "token": token}, group


async def test_who_runs_from_where_and_no_secret(tmp_path):
    await RunManifests([str(tmp_path)]).write(*rows(tmp_path))
    text = (tmp_path / ".heteroflow" / "run-7.json").read_text()
    told = json.loads(text)
    assert (told["group_id"], told["attempt"], told["world"], told["framework"]) == ("tg-1", 1, 2, "deepspeed")
    assert told["ranks"] == [{"rank": 0, "node": "n1"}] and told["resume"] is None
    assert told["config"]["training"]["hyper_params"] == {"lr": "1e-4"} and "S3cr3t" not in text
    assert os.listdir(tmp_path / ".heteroflow") == ["run-7.json"]


async def test_other_ranks_and_groups_without_a_path_write_none(tmp_path):
    manifests = RunManifests([str(tmp_path)])
    await manifests.write(*rows(tmp_path, rank=1))
    row, group = rows(tmp_path)
    await manifests.write(row, {**group, "checkpoint_path": None})
    assert os.listdir(tmp_path) == []


async def test_the_probe_learns_the_world_from_it(tmp_path):
    tree = copied("deepspeed-zero2/complete", tmp_path)
    for cards, picks in ((2, True), (8, False)):
        shutil.rmtree(tree / ".heteroflow", ignore_errors=True)
        await RunManifests([str(tmp_path)]).write(*rows(tree, cards=cards))
        os.utime(tree / ".heteroflow" / "run-7.json", (1, 1))
        assert (probed(tree, "deepspeed").pick is not None) == picks
    assert "8 wrote it" in why(probed(tree, "deepspeed"), "global_step20")
    # A script that starts its processes itself may start any number.
    shutil.rmtree(tree / ".heteroflow")
    await RunManifests([str(tmp_path)]).write(*rows(tree, cards=8, launcher="script"))
    os.utime(tree / ".heteroflow" / "run-7.json", (1, 1))
    assert probed(tree, "deepspeed").pick == "global_step20"


async def test_old_ones_go(tmp_path):
    manifests = RunManifests([str(tmp_path)])
    for token in range(1, KEPT + 6):
        await manifests.write(*rows(tmp_path, token))
    names = os.listdir(tmp_path / ".heteroflow")
    assert len(names) == KEPT and "run-5.json" not in names and f"run-{KEPT + 5}.json" in names


@pytest.mark.attack(3, 5)
async def test_links_in_its_way_lead_nowhere(tmp_path):
    outside, here = tmp_path / "outside", tmp_path / "here"
    outside.mkdir()
    here.mkdir()
    (outside / "file").write_text("x")
    (here / ".heteroflow").symlink_to(outside)
    manifests = RunManifests([str(here)])
    await manifests.write(*rows(here))
    assert os.listdir(outside) == ["file"]
    (here / ".heteroflow").unlink()
    (here / ".heteroflow").mkdir()
    for name in ("run-7.json", f"run-7.json.tmp-{os.getpid()}"):
        (here / ".heteroflow" / name).symlink_to(outside / "file")
    await manifests.write(*rows(here))
    assert (outside / "file").read_text() == "x"
    assert not (here / ".heteroflow" / "run-7.json").is_symlink()
    (tmp_path / "link").symlink_to(outside)
    await manifests.write(*rows(tmp_path / "link"))
    assert os.listdir(outside) == ["file"], "the path itself leads out of what is allowed"


async def test_a_directory_that_takes_nothing_stops_no_start(tmp_path):
    (tmp_path / ".heteroflow").write_text("a file")
    await RunManifests([str(tmp_path)]).write(*rows(tmp_path))
    await RunManifests([str(tmp_path)]).write(*rows(tmp_path / "gone"))
