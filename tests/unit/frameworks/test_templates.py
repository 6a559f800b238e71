"""The templates: right as they are, and careful with what was edited."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.cli.main import run
from console.cli.terminal import Terminal
from console.core.rendered_rank import render
from schemas.as_written_yaml import parse_yaml
from schemas.rules.templates import ALL
from schemas.rules.templates.apply import applied, newest, template_named
from schemas.task_group import check_task_group

IMAGES = Path(__file__).parents[3] / "docs" / "images"
by_name = {template.name: template for template in newest()}
names = st.sampled_from(sorted(by_name))


def test_all_eight():
    assert len(newest()) == 8 and len({template.mark for template in ALL}) == len(ALL)
    assert template_named("openmp/1") is template_named("openmp") is by_name["openmp"]
    assert template_named("openmp/2") is None


@pytest.mark.parametrize("template", ALL, ids=lambda template: template.mark)
def test_it_would_be_accepted_and_every_rank_is_rendered(template):
    checked = check_task_group(applied(template, {}).document)
    assert checked.errors == []
    assert {finding.code for finding in checked.warnings} <= {"shared_storage_unproved"}
    document = checked.document
    assert document is not None and document["labels"] == {"template": template.mark}
    for rank in range(document["training"]["n_nodes"]):
        assert render(document, rank).to_dict()["env"]["NODE_RANK"] == str(rank)


@pytest.mark.parametrize("template", ALL, ids=lambda template: template.mark)
def test_what_is_to_be_edited_is_there_and_its_image_has_a_recipe_or_a_home(template):
    for field in template.edit:
        value = template.document
        for name in field.split("."):
            value = value[name]
    image = str(template.document["task"]["image"])
    if image.startswith("heteroflow/"):
        recipe = IMAGES / image.removeprefix("heteroflow/").partition(":")[0] / "Dockerfile"
        assert re.search(r"^FROM \S+:\S+$", recipe.read_text(), re.MULTILINE)


@settings(max_examples=60, deadline=None)
@given(names, names)
def test_an_unedited_document_becomes_the_other_template_and_comes_back(one, other):
    first = applied(by_name[one], {}).document
    there = applied(by_name[other], first)
    assert there.document == applied(by_name[other], {}).document and there.kept == ()
    assert applied(by_name[one], there.document).document == first


@settings(max_examples=100, deadline=None)
@given(
    names,
    names,
    st.sampled_from(
        ["name", "training.checkpoint_path", "task.command", "training.hyper_params.learning_rate", "labels.team"]
    ),
)
def test_an_edited_field_is_kept_whatever_is_applied(one, other, field):
    document = applied(by_name[one], {}).document
    *holders, last = field.split(".")
    holder = document
    for name in holders:
        holder = holder.setdefault(name, {})
    holder[last] = "/data/mine"
    found = applied(by_name[other], document)
    value: Any = found.document
    for name in field.split("."):
        value = value[name]
    assert value == "/data/mine"
    assert found.document["training"]["framework"] == by_name[other].document["training"]["framework"]
    assert (field in found.kept) == (
        field in {"name", "training.checkpoint_path", "task.command"} or field in _fields(by_name[other])
    )
    assert applied(by_name[other], found.document).document == found.document, "applying it again changes nothing"


def _fields(template):
    return {f"training.hyper_params.{name}" for name in template.document["training"].get("hyper_params", {})}


def test_what_only_the_earlier_template_had_goes_and_what_was_edited_of_it_stays():
    document = applied(by_name["deepspeed-zero2"], {}).document
    document["training"]["hyper_params"]["zero_stage"] = "3"
    found = applied(by_name["fsdp-full-shard"], document)
    assert found.document["training"]["hyper_params"]["zero_stage"] == "3"
    assert "training.hyper_params.gradient_clipping" in found.removed
    assert [finding.path for finding in check_task_group(found.document).errors] == ["training.hyper_params.zero_stage"]


def test_a_document_of_nobody_s_template_is_only_filled():
    mine = {
        "name": "mine of today",
        "training": {"framework": "ddp", "n_nodes": 3},
        "task": {"command": "torchrun t.py"},
    }
    found = applied(by_name["fsdp-full-shard"], mine)
    assert found.document["training"]["framework"] == "fsdp" and found.document["training"]["n_nodes"] == 3
    assert found.document["task"]["command"] == "torchrun t.py" and found.removed == ()
    assert found.kept == ("name", "task.command", "training.n_nodes")
    strange = applied(by_name["openmp"], {**mine, "labels": {"template": "gone/7"}})
    assert strange.unknown_base == "gone/7" and strange.document["name"] == "mine of today"


def said(*words):
    out, err = io.StringIO(), io.StringIO()
    return run(["template", *words], Terminal(out, err, {})), out.getvalue(), err.getvalue()


def test_the_verb(tmp_path):
    assert said("ls")[1].count("\n") == 9
    assert len(json.loads(said("ls", "-o", "json")[1])["templates"]) == 8
    code, text, _ = said("show", "deepspeed-zero2")
    assert code == 0 and check_task_group(parse_yaml(text.encode())).errors == []
    (tmp_path / "job.yaml").write_text(text.replace("3e-4", "1e-4"))
    code, text, err = said("apply", "fsdp-full-shard", str(tmp_path / "job.yaml"))
    document = parse_yaml(text.encode())
    assert document["training"]["hyper_params"]["learning_rate"] == "1e-4"
    assert "kept, because they were edited: training.hyper_params.learning_rate" in err
    assert check_task_group(document).errors == []


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("show",), 2, "no template"),
        (("show", "x"), 3, "Known: ddp-single-node"),
        (("show", "openmp", "f"), 2, "apply"),
    ],
)
def test_what_cannot_be_done_is_said(words, code, text):
    found, _, err = said(*words)
    assert found == code and text in err
