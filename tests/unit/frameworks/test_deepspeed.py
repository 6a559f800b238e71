"""ds_config.json: the arithmetic, what is merged, what contradicts."""

import json

import pytest
from hypothesis import assume, settings
from hypothesis import given as forall
from hypothesis import strategies as st

from schemas.rules.frameworks.deepspeed import NotAnObject, config, given
from schemas.rules.frameworks.parameters import Parameters
from schemas.task_group import check_task_group
from tests.unit.frameworks.documents import document, placed, written


def made(world: int = 8, **hyper_params: object):
    return config(Parameters({key: str(value) for key, value in hyper_params.items()}), world)


def test_the_whole_file():
    found, conflicts = made(
        zero_stage=3, micro_batch_size=4, precision="bf16", gradient_clipping="1.0", offload_param="cpu"
    )
    assert conflicts == []
    assert found == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "train_batch_size": 32,
        "zero_optimization": {
            "stage": 3,
            "offload_param": {"device": "cpu"},
            "overlap_comm": True,
            "contiguous_gradients": True,
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
    }


@pytest.mark.parametrize(
    ("said", "batches"),
    [
        ({"train_batch_size": 64}, (64, 8, 1)),
        ({"train_batch_size": 64, "micro_batch_size": 2}, (64, 2, 4)),
        ({"global_batch_size": 64, "gradient_accumulation_steps": 4}, (64, 2, 4)),
        ({"micro_batch_size": 2, "gradient_accumulation_steps": 3}, (48, 2, 3)),
        ({"micro_batch_size": 2, "tp": 2}, (8, 2, 1)),
        ({"micro_batch_size": 2, "deepspeed_config": '{"train_batch_size": 32}'}, (32, 2, 2)),
    ],
)
def test_batches_follow_from_what_is_said(said, batches):
    found, conflicts = made(**said)
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert (tuple(found[key] for key in keys), conflicts) == (batches, [])


def test_auto_is_left_for_the_trainer():
    found, _ = made(micro_batch_size="auto", train_batch_size="auto")
    assert found == {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"}


def test_the_user_s_part_is_kept_and_wins_over_defaults_only():
    part = '{"steps_per_print": 7, "zero_optimization": {"overlap_comm": false, "stage": "auto"}}'
    found, conflicts = made(zero_stage=2, precision="bf16", deepspeed_config=part)
    assert found["steps_per_print"] == 7
    assert found["zero_optimization"] == {"stage": 2, "overlap_comm": False, "contiguous_gradients": True}
    assert conflicts == []
    (conflict,) = made(precision="bf16", deepspeed_config='{"bf16": {"enabled": false}}')[1]
    assert (conflict.where, conflict.ours, conflict.theirs) == ("bf16.enabled", True, False)


@pytest.mark.parametrize(
    "part", ["{", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": ' + "[" * 1500 + "]" * 1500 + "}", '{"a": 1e999}']
)
def test_a_part_that_is_no_object(part):
    with pytest.raises(NotAnObject):
        made(deepspeed_config=part)
    assert given(Parameters({"ds_config": part}), placed()).files.keys() == {"hostfile"}


def test_a_path_is_the_script_s_own():
    assert made(deepspeed_config="/data/ds.json") == ({}, [])


def test_the_hostfile_names_every_node_once():
    found = given(Parameters({}), placed(nodes=3, cards=2))
    assert found.files == {"hostfile": "node-0 slots=2\nnode-1 slots=2\nnode-2 slots=2\n"}
    assert found.env == {"HETEROFLOW_HOSTFILE": "/given/hostfile"}


def test_contradictions_are_refused_when_submitted():
    part = json.dumps({"zero_optimization": {"stage": 1}, "train_batch_size": 10})
    found = check_task_group(written("deepspeed", zero_stage=2, micro_batch_size=4, deepspeed_config=part)).errors
    assert [(finding.code, finding.path) for finding in found] == [
        ("framework_parameter", "training.hyper_params.deepspeed_config")
    ] * 2
    assert any("zero_optimization.stage 1" in finding.message and "2" in finding.message for finding in found)
    assert any("train_batch_size 10" in finding.message and "32" in finding.message for finding in found)


def test_half_a_part_is_refused_when_submitted():
    (finding,) = check_task_group(written("deepspeed", deepspeed_config='{"a": ')).errors
    assert finding.path == "training.hyper_params.deepspeed_config" and "no JSON object" in finding.message


sizes = st.none() | st.integers(1, 12)


@settings(max_examples=300, deadline=None)
@forall(st.integers(1, 4), st.integers(1, 4), sizes, sizes, sizes)
def test_what_the_guards_accept_satisfies_deepspeed_s_own_assertion(nodes, cards, whole, micro, accum):
    said = {"train_batch_size": whole, "micro_batch_size": micro, "gradient_accumulation_steps": accum}
    raw = written("deepspeed", nodes, cards, **{key: value for key, value in said.items() if value is not None})
    checked = check_task_group(raw)
    assume(checked.document is not None and (whole or micro))
    text = given(Parameters(checked.document["training"]["hyper_params"]), placed(0, nodes, cards)).files[
        "ds_config.json"
    ]
    found = json.loads(text)
    batches = found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * nodes * cards
    assert found["train_batch_size"] == batches
    for key, value in (("train_batch_size", whole), ("train_micro_batch_size_per_gpu", micro)):
        assert value is None or found[key] == value


def test_every_document_of_it_is_accepted_again():
    right = document("deepspeed", zero_stage=2)
    assert check_task_group(right).document == right
