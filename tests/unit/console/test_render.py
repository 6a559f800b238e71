"""`heteroflow render`: what a rank gets, said before anything is placed."""

import io
import json
import shlex

import pytest

from console.cli.main import run
from console.cli.terminal import Terminal
from tests.unit.frameworks.documents import written
from tests.unit.schemas.documents import good


@pytest.fixture
def render(tmp_path):
    def call(document, *words):
        (tmp_path / "job.json").write_text(json.dumps(document))
        out, err = io.StringIO(), io.StringIO()
        code = run(["render", str(tmp_path / "job.json"), *words], Terminal(out, err, {}))
        return code, out.getvalue(), err.getvalue()

    return call


def test_a_rank_on_a_host(render):
    code, out, _ = render(good(), "--rank", "1", "--json")
    told = json.loads(out)
    assert (code, told["rank"], told["argv"]) == (0, 1, ["/bin/sh", "-c", "torchrun t.py"])
    assert (told["env"]["NODE_RANK"], told["env"]["WORLD_SIZE"]) == ("1", "8")
    assert told["env"]["MASTER_ADDR"] == "<address of rank 0's node>"
    assert told["env"]["CUDA_VISIBLE_DEVICES"].count("of rank 1>") == 4
    assert told["env"]["HETEROFLOW_CHECKPOINT_PATH"] == "/data/ckpt/llama"
    assert told["mounts"] == [] and told["files"] == {}
    assert "<group id>" in told["placeholders"] and "<the image's>" not in told["placeholders"]


def test_a_rank_in_a_container(render):
    document = written("deepspeed", zero_stage=2, micro_batch_size=1)
    document["task"] |= {"image": "r/x:1", "mounts": [{"source": "/data/code", "target": "/code", "read_only": True}]}
    document["task"]["command"] = ["torchrun", "t.py"]
    told = json.loads(render(document, "--json")[1])
    assert told["argv"] == ["torchrun", "t.py"] and told["cwd"] == "<the image's>"
    assert [mount["target"] for mount in told["mounts"]] == ["/checkpoint", "/code", "/heteroflow"]
    assert told["env"]["HETEROFLOW_CHECKPOINT_PATH"] == "/checkpoint"
    assert told["env"]["HETEROFLOW_DEEPSPEED_CONFIG"] == "/heteroflow/ds_config.json"
    assert json.loads(told["files"]["/heteroflow/ds_config.json"])["train_batch_size"] == 8


@pytest.mark.parametrize(
    ("path", "inside", "mounted"),
    [("/checkpoint/step-5", "/checkpoint/step-5", False), ("/data/other/step-5", "/resume/step-5", True)],
)
def test_what_it_resumes_from_is_where_the_rank_finds_it(render, path, inside, mounted):
    document = good(training__resume_from_checkpoint=path)
    on_host = json.loads(render(document, "--json")[1])
    real = path.replace("/checkpoint", "/data/ckpt/llama")
    assert (on_host["env"]["HETEROFLOW_RESUME_FROM_CHECKPOINT"], on_host["mounts"]) == (real, [])
    document["task"]["image"] = "r/x:1"
    told = json.loads(render(document, "--json")[1])
    assert told["env"]["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == inside
    mount = {"source": real, "target": inside, "read_only": True}
    assert (mount in told["mounts"]) is mounted


def test_for_people(render):
    code, out, _ = render(written("deepspeed"))
    assert code == 0 and "argv   /bin/sh -c" in out and "node-1 slots=4" in out and "decided when it is placed" in out


def test_a_wrong_document_says_what_lint_says(render):
    document = good(training__n_nodes=0)
    code, out, _ = render(document, "--json")
    assert code == 1 and [finding["path"] for finding in json.loads(out)["errors"]] == ["training.n_nodes"]


def test_what_is_printed_for_people_is_what_a_shell_would_run(render):
    document = good(training__hyper_params={"note": "two\nlines"})
    document["task"]["command"] = command = "set -e\ncd '/a b'\n\ttorchrun t.py\n"
    out = render(document)[1]
    argv, rest = out.split("argv   ", 1)[1].split("\ncwd    ", 1)
    assert shlex.split(argv) == ["/bin/sh", "-c", command]
    env = shlex.split(rest.split("env\n", 1)[1].split("\nmounts", 1)[0], comments=False)
    assert "HETEROFLOW_HP_NOTE=two\nlines" in env


@pytest.mark.parametrize(
    ("rank", "said"),
    [("2", "ranks 0 to 1"), ("-1", "--rank: must be a whole number"), ("x", "--rank: must be a whole")],
)
def test_a_rank_that_there_is_not(render, capsys, rank, said):
    code, _, err = render(good(), "--rank", rank)
    assert code == 2 and said in err + capsys.readouterr().err
