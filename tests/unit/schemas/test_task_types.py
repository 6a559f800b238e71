"""Documents of inference and container groups."""

from typing import Any

import pytest

from schemas.as_written_yaml import parse_yaml
from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group, encode_document
from schemas.task_types import shown_shape
from tests.unit.schemas.documents import accepted, codes, errors_at, good

SERVICE: dict[str, Any] = {
    "name": "llama chat",
    "task_type": "inference",
    "task": {"command": "serve --port $PORT", "gpu_required": 1, "ports": {"http": 8000}},
}


def of(task_type: str = "inference", part: object = None, top: dict[str, Any] | None = None, **task: Any) -> Any:
    document = {**SERVICE, "task_type": task_type, "task": {**SERVICE["task"], **task}, **(top or {})}
    return document if part is None else {**document, task_type: part}


@pytest.mark.parametrize("task_type", ["inference", "container"])
def test_the_shortest_one_has_its_defaults_written_down(task_type):
    document = accepted(of(task_type))
    assert document == {
        "name": "llama chat",
        "task_type": task_type,
        "priority": "normal",
        "on_isolation": "stop",
        task_type: {"n_nodes": 1},
        "task": {
            "command": "serve --port $PORT",
            "gpu_required": 1,
            "ports": {"http": 8000},
            "stop_grace_s": 60,
        },
    }
    assert accepted(document) == document
    shape = {"n_nodes": 1, "per_node_gpu": 1, "gpu_type": None, "framework": None}
    assert shown_shape(document) == shape


def test_several_nodes_and_a_card_type():
    document = accepted(of(part={"n_nodes": 2, "gpu_type": "H100", "model": "llama3-8b"}, gpu_required=4))
    assert document["inference"] == {"n_nodes": 2, "gpu_type": ["H100"], "model": "llama3-8b"}
    assert shown_shape(document) == {"n_nodes": 2, "per_node_gpu": 4, "gpu_type": ["H100"], "framework": None}


@pytest.mark.parametrize("task_type", ["inference", "container"])
def test_they_may_have_no_cards_and_training_may_not(task_type):
    assert accepted(of(task_type, gpu_required=0))["task"]["gpu_required"] == 0
    assert errors_at(good(task__gpu_required=0), "task.gpu_required")


def test_their_commands_are_no_launchers():
    """What would split a training's world means nothing here."""
    assert accepted(of("container", command="torchrun --nnodes=9 t.py || true"))


@pytest.mark.parametrize("task_type", ["inference", "container"])
@pytest.mark.parametrize("field", "framework hyper_params checkpoint_path world_size recovery deadline_s".split())
def test_a_field_of_training_is_refused_by_name(task_type, field):
    (finding,) = errors_at(of(task_type, {field: "x"}), f"{task_type}.{field}")
    assert finding.code == "not_for_type" and "only training has it" in finding.message


def test_the_section_of_another_type_is_refused():
    assert codes(of("container", {}, {"training": {"framework": "ddp"}})) == {"training": "not_for_type"}
    assert codes(of("container", {}, {"inference": {}})) == {"inference": "not_for_type"}
    assert codes(good(inference={})) == {"inference": "not_for_type"}
    # Without a type, the section says which is meant.
    untyped = {**SERVICE, "inference": {}}
    del untyped["task_type"]
    assert codes(untyped) == {"task_type": "missing_field"}


def test_misplaced_and_misspelled_fields_are_told_where_they_belong():
    (finding,) = errors_at(of("container", None, {"n_nodes": 2}), "n_nodes")
    assert "container.n_nodes" in finding.hint
    (finding,) = errors_at(of("inference", {"replicas": 2}), "inference.replicas")
    assert "one group per replica" in finding.hint
    (finding,) = errors_at(of("container", {"replicas": 2}), "container.replicas")
    assert "n_nodes" in finding.hint


@pytest.mark.parametrize(
    ("part", "top", "path"),
    [
        ({"autoscale": {}}, {}, "inference.autoscale"),
        ({"sleep": True}, {}, "inference.sleep"),
        ({"health": {"path": "/"}}, {}, "inference.health"),
        ({}, {"preemptible": True}, "preemptible"),
        ({}, {"max_retries": 3}, "max_retries"),
    ],
)
def test_what_would_silently_not_happen_is_refused(part, top, path):
    assert codes(of(part=part, top=top)) == {path: "not_supported_yet"}
    (finding,) = errors_at(of(part=part, top=top), path)
    assert finding.hint


def test_what_means_nothing_anyway_is_no_reason_to_refuse():
    checked = check_task_group(of(top={"preemptible": False, "max_retries": 0}))
    assert checked.document is not None and checked.warnings == []


class TestPorts:
    def test_by_name_and_in_the_order_of_names(self):
        document = accepted(of(ports={"http": 8000, "admin_2": 65535}))
        assert list(document["task"]["ports"].items()) == [("admin_2", 65535), ("http", 8000)]
        assert accepted(document) == document

    def test_as_yaml_writes_them(self):
        text = b"name: a b\ntask_type: container\ntask: {command: c, gpu_required: 0, ports: {http: 8000}}\n"
        assert accepted(parse_yaml(text))["task"]["ports"] == {"http": 8000}

    def test_training_may_have_them_too(self):
        assert accepted(good(task__ports={"tensorboard": 6006}))["task"]["ports"] == {"tensorboard": 6006}

    @pytest.mark.parametrize(
        "ports",
        [
            [8000],
            8000,
            None,
            {},
            {"http": 80},
            {"http": 65536},
            {"http": "x"},
            {"http": None},
            {"http": True},
            {"HTTP": 8000},
            {"8": 8000},
            {"a-b": 8000},
            {"": 8000},
            {"a" * 33: 8000},
            {"a": 8000, "b": 8000},
            {f"p{at}": 8000 + at for at in range(17)},
        ],
    )
    def test_others_are_refused(self, ports):
        found = codes(of(ports=ports))
        assert found and all(path.startswith("task.ports") for path in found)
        assert set(found.values()) == {"invalid_field"}


@pytest.mark.parametrize("part", [None, 5, "x", [], {"n_nodes": 0}, {"n_nodes": "2"}, {"gpu_type": []}])
def test_nothing_raises(part):
    document = of("container", {})
    document["container"] = part
    checked = check_task_group(document)
    assert checked.document is None and all(finding.path.startswith("container") for finding in checked.errors)


def test_the_normal_form_survives_its_encoding():
    document = accepted(of(part={"gpu_type": ["H100", "A100"]}))
    assert accepted(parse_strict_json(encode_document(document))) == document
