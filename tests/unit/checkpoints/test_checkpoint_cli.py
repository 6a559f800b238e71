"""`heteroflow checkpoint probe`: offline, JSON for programs, a table for people."""

import io
import json
import os

import pytest

from console.cli.main import run
from console.cli.terminal import Terminal
from schemas.rules.checkpoints.probe import FRAMEWORKS
from tests.unit.checkpoints.trees import copied, samples


def said(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    # No node and no token: it works without a mesh.
    code = run(["checkpoint", "probe", *words], Terminal(out, err, {}))
    return code, out.getvalue(), err.getvalue()


def test_json():
    code, out, _ = said(str(samples() / "hf-trainer/killed-state"), "--framework", "ddp", "--json")
    assert code == 0 and json.loads(out) == {
        "pick": "checkpoint-10",
        "step": 10,
        "rejected": [["checkpoint-20", "trainer_state.json, which is written last, is missing"]],
        "tracker": None,
        "reason": "checkpoint-10 is the newest complete one of 2; 1 rejected",
    }


def test_a_table_for_people():
    code, out, _ = said(str(samples() / "layout-only/deepspeed-zero3/latest-missing-dir"), "--framework", "deepspeed")
    assert code == 0
    assert out.splitlines()[:2] == [
        "global_step100 is the newest complete one of 1; 1 rejected",
        "its own record says global_step200",
    ]
    assert "`latest` names it, but it is not here" in out


def test_nothing_complete_is_an_answer():
    code, out, _ = said(str(samples() / "pytorch-fsdp2-dcp/nonshared-disk-node1-view"), "--framework", "fsdp", "--json")
    assert code == 0 and json.loads(out)["pick"] is None


def test_the_world_may_be_said():
    place = str(samples() / "deepspeed-zero2/complete")
    assert json.loads(said(place, "--framework", "deepspeed", "--world", "2", "--json")[1])["step"] == 20
    assert json.loads(said(place, "--framework", "deepspeed", "--world", "8", "--json")[1])["pick"] is None


@pytest.mark.parametrize("framework", ["pytorch", ""])
def test_the_frameworks_are_those_of_the_document(framework, capsys):
    assert said("/tmp", "--framework", framework)[0] == 2
    told = capsys.readouterr().err
    assert all(name in told for name in FRAMEWORKS)
    assert set(FRAMEWORKS) == {"ddp", "fsdp", "deepspeed", "megatron", "tensorflow", "paddle", "jax"}


def test_no_such_directory(tmp_path):
    code, _, err = said(str(tmp_path / "nowhere"), "--framework", "ddp")
    assert code == 3 and "cannot be opened: No such file or directory" in err
    (tmp_path / "file").touch()
    assert said(str(tmp_path / "file"), "--framework", "ddp")[0] == 3


@pytest.mark.attack(48)
def test_names_cannot_drive_the_terminal(tmp_path):
    tree = copied("hf-trainer/complete", tmp_path)
    os.mkdir(os.fsencode(tree) + b"/step-1.\x1b]0;owned\x07.tmp")
    (tree / "checkpoint-20" / "\x1b[2J.tmp").touch()
    for words in ((), ("--json",)):
        _, out, err = said(str(tree), "--framework", "ddp", *words)
        assert "\x1b" not in out + err and "owned" in out
