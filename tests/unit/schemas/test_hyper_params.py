import json

import pytest

from schemas.as_written_yaml import parse_yaml
from schemas.rules.environment import rank_environment
from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group, encode_document
from tests.unit.schemas.documents import GOOD, accepted, codes, good


def hyper(**values):
    return good(training__hyper_params=values)


def environment(document):
    return rank_environment(document, "tg-1", 1, 0, 2, 4, "10.0.0.1", 20_001, "/c", None, None, ["GPU-1"])


def test_a_learning_rate_arrives_as_it_was_written_and_so_does_that_of_its_clone():
    text = b"""
name: lr
task_type: training
training:
  framework: ddp
  n_nodes: 1
  per_node_gpu: 1
  hyper_params:
    learning_rate: 1e-4
    warmup: 1.0e-4
    max_steps: 5e6
    eps: 0.00001
task: {command: t, gpu_required: 1}
"""
    wanted = {"LEARNING_RATE": "1e-4", "WARMUP": "1.0e-4", "MAX_STEPS": "5e6", "EPS": "0.00001"}
    document = accepted(parse_strict_json(encode_document(parse_yaml(text))))
    clone = accepted(parse_strict_json(encode_document(document)))
    for each in (document, clone):
        values = environment(each)
        assert {name: values[f"HETEROFLOW_HP_{name}"] for name in wanted} == wanted
        assert all(float(values[f"HETEROFLOW_HP_{name}"]) for name in wanted)


def test_bare_yaml_scalars_are_delivered_as_typed_and_null_is_refused_by_name():
    text = b"""
    country: no
    amp: on
    seed: 0755
    fold: 08
    window: 22:30
    tag: 2026-01-01
    cap: 1_000
    note: ~
"""
    values = parse_yaml(text)
    assert codes(hyper(**values)) == {"training.hyper_params.note": "invalid_field"}
    del values["note"]
    assert accepted(hyper(**values))["training"]["hyper_params"] == {
        "country": "no",
        "amp": "on",
        "seed": "0755",
        "fold": "08",
        "window": "22:30",
        "tag": "2026-01-01",
        "cap": "1_000",
    }


def test_one_rule_makes_texts_and_the_rest_is_refused_by_name():
    values = parse_strict_json(b'{"a":1,"b":"1","c":1.0,"d":true,"e":null,"f":[1,2],"g":{"x":1},"h":"","i":1e400}')
    assert set(codes(hyper(**values))) == {f"training.hyper_params.{key}" for key in "efgi"}
    kept = accepted(hyper(**{key: values[key] for key in "abcdh"}))
    assert kept["training"]["hyper_params"] == {"a": "1", "b": "1", "c": "1.0", "d": "true", "h": ""}
    assert environment(kept)["HETEROFLOW_HP_H"] == ""


def test_values_reach_the_environment_byte_for_byte():
    values = {
        "prompt": "a b'c\"d",
        "model": "Gem 3 (Medium)",
        "inj": "$(touch /checkpoint/pwn)",
        "bt": "`id`",
        "nl": "x\ny",
        "eq": "a=b",
        "dash": "--lr",
        "zh": "步态",
    }
    found = environment(accepted(hyper(**values)))
    assert {key: found[f"HETEROFLOW_HP_{key.upper()}"] for key in values} == values
    assert json.loads(found["HETEROFLOW_HYPER_PARAMS"]) == values


@pytest.mark.parametrize("key", ["", "1a", "a b", "-a", "a$", "步", "a" * 65, "a\n"])
def test_keys_have_a_pattern(key):
    assert "training.hyper_params" in codes(hyper(**{key: "1"}))


@pytest.mark.parametrize("value", ["x" * 4097, "汉" * 1400, "a\0b", "\ud800", 1.5, float("inf"), b"x", object()])
def test_values_have_limits(value):
    assert "training.hyper_params.k" in codes(hyper(k=value))


def test_at_most_64_keys():
    assert accepted(hyper(**{f"k{at}": "1" for at in range(64)}))
    assert codes(hyper(**{f"k{at}": "1" for at in range(65)})) == {"training.hyper_params": "invalid_field"}


@pytest.mark.attack(19)
def test_two_keys_that_become_one_variable_are_both_named():
    (finding,) = check_task_group(hyper(**{"batch-size": "1", "batch_size": "2"})).errors
    assert "batch-size" in finding.message
    assert "batch_size" in finding.message
    assert "HETEROFLOW_HP_BATCH_SIZE" in finding.message


@pytest.mark.attack(19)
@pytest.mark.parametrize(
    "name",
    "RANK LOCAL_RANK MASTER_ADDR MASTER_PORT NODE_RANK NNODES WORLD_SIZE LOCAL_WORLD_SIZE PET_X HETEROFLOW_X "
    "CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES TF_CONFIG PADDLE_TRAINERS HETEROFLOW_HP_LR".split(),
)
def test_env_may_not_take_names_of_the_platform(name):
    assert codes(good(task__env={name: "1"})) == {f"task.env.{name}": "reserved_variable"}


def test_env_collision_with_a_generated_name_says_which_key_made_it():
    (finding,) = check_task_group(good(task__env={"HETEROFLOW_HP_LR": "1"})).errors
    assert "training.hyper_params.lr" in finding.message


@pytest.mark.parametrize("name", ["A B", "1A", "", "A=B", "A-B"])
def test_env_names_are_names(name):
    assert "task.env" in codes(good(task__env={name: "1"}))


def test_all_variables_together_fit_the_kernel():
    assert accepted(good(task__env={f"E{at}": "x" * 30_000 for at in range(3)}))
    document = good(task__env={f"E{at}": "x" * 30_000 for at in range(4)})
    assert codes(document) == {"task.env": "environment_too_large"}


@pytest.mark.attack(19)
def test_a_hyper_parameter_never_becomes_an_orchestration_variable():
    found = environment(accepted(hyper(node_rank="99", rank="7")))
    assert found["HETEROFLOW_HP_NODE_RANK"] == "99"
    assert found["NODE_RANK"] == "0"
    assert "RANK" not in found
    assert GOOD["training"]["hyper_params"] == {"lr": "1e-4"}
