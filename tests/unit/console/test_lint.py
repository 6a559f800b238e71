"""`heteroflow lint`: the rules of submit without a mesh, for people and for programs."""

import io
import json

import pytest

from console.cli.main import run
from console.cli.terminal import Terminal
from tests.unit.schemas.documents import DELETED, good


class Lint:
    def __init__(self, directory):
        self._directory = directory
        self.out = self.err = ""

    def __call__(self, content, *words, name="job.json"):
        path = self._directory / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return self.run("lint", str(path), *words)

    def run(self, *words):
        out, err = io.StringIO(), io.StringIO()
        code = run(words, Terminal(out, err, {}))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code


@pytest.fixture
def lint(tmp_path):
    return Lint(tmp_path)


def test_a_right_document(lint):
    assert lint(good()) == 0
    assert "would be accepted: no errors, 1 warning" in lint.out
    assert "same shared directory on all 2 nodes" in lint.out


def test_everything_wrong_is_said_with_what_to_do(lint):
    assert (
        lint(good(task__command="torchrun --nnodes=3 t.py || true", task__gpu_required=3, name="train_final_v3")) == 1
    )
    assert lint.out.splitlines()[0].endswith("would be refused: 3 errors, 2 warnings")
    for said in (
        "--nnodes=3, but training.n_nodes is 2",
        "write --nnodes=$NNODES",
        "|| true",
        "Set task.gpu_required to 4",
    ):
        assert said in lint.out
    assert "[vague_name]" in lint.out


def test_json_is_for_programs(lint):
    assert lint(good(task__command="torchrun --nnodes=3 t.py"), "--json") == 1
    answer = json.loads(lint.out)
    assert set(answer) == {"errors", "warnings"}
    (error,) = answer["errors"]
    assert set(error) == {"code", "path", "message", "hint"}
    assert (error["code"], error["path"]) == ("launch_contradiction", "task.command")
    assert [warning["code"] for warning in answer["warnings"]] == ["shared_storage_unproved"]
    assert lint(good(), "-o", "json") == 0
    assert json.loads(lint.out)["errors"] == []


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a: [", b"{", b"a: 1\na: 2"])
def test_what_cannot_be_read(lint, content):
    assert lint(content, name="job.yaml") == 2
    assert lint.err.startswith("heteroflow: ")
    assert lint(content, "--json", name="job.yaml") == 2
    answer = json.loads(lint.out)
    assert len(answer["errors"]) == 1
    assert answer["errors"][0]["message"]


def test_a_file_that_is_not_there(lint, tmp_path):
    assert lint.run("lint", str(tmp_path / "none.yaml"), "--json") == 2
    assert json.loads(lint.out)["errors"][0]["code"] == "no_document"


@pytest.mark.parametrize("content", [b"[1]", b"word"])
def test_what_is_no_document_is_refused(lint, content):
    assert lint(content, name="job.yaml") == 1
    assert "must be a mapping" in lint.out


def test_standard_input_yaml_and_set(lint, monkeypatch):
    text = b"name: llama\ntask_type: training\ntraining: {framework: ddp, n_nodes: 2, per_node_gpu: 4}\n"
    text += b"task: {command: torchrun --nnodes=2 t.py, gpu_required: 4}\n"

    def given():
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))

    given()
    assert lint.run("lint", "-") == 0
    assert lint.out.startswith("✓ standard input would be accepted")
    given()
    assert lint.run("lint", "-", "--set", "training.n_nodes=3") == 1
    assert "training.n_nodes is 3" in lint.out


def test_paths_of_this_mesh(lint):
    document = good(training__checkpoint_path="/srv/ckpt/x")
    assert lint(document) == 1
    assert lint(document, "--allow-path", "/srv/") == 0


def test_what_a_parent_gives_is_no_error_of_the_document(lint):
    parent = {"parent_checkpoint": "tg-" + "0" * 20, "checkpoint_path": "/data/ckpt/b"}
    document = {"name": "child", "task_type": "training", "training": parent, "task": {"command": "torchrun t.py"}}
    assert lint(document) == 0
    assert "is right as far as it goes" in lint.out and "parent_checkpoint" in lint.err
    assert lint(document, "--json") == 0 and json.loads(lint.out) == {"errors": [], "warnings": []}
    assert lint({**document, "training": {**parent, "nodes": 2}}) == 1 and "did you mean n_nodes" in lint.out
    own = {name: value for name, value in parent.items() if name != "checkpoint_path"}
    assert lint({"task_type": "training", "training": own}) == 1
    for said in ("2 errors", "name is missing", "training.checkpoint_path is missing"):
        assert said in lint.out
    path = lint._directory / "job.json"
    path.write_text(json.dumps(document))
    assert lint.run("render", str(path)) == 2 and "heteroflow clone PARENT" in lint.err


def test_a_script_of_a_batch_system_is_told_where_it_belongs(lint):
    assert lint(b"#!/bin/bash\n#SBATCH --nodes=2\nsrun x\n", name="job.sbatch") == 2
    assert "task.command" in lint.err and "heteroflow template ls" in lint.err


@pytest.mark.attack(48)
def test_no_text_of_a_document_drives_a_terminal(lint):
    assert (
        lint(good(name="a\x1b[2Jb", task__command="torchrun --nnodes=\x1b[2J t.py", training__checkpoint_path=DELETED))
        == 1
    )
    assert "\x1b" not in lint.out
