"""Groups that are no training, in lists and in detail."""

from console.core.detail_lines import _listens
from console.core.group_list import filter_fields
from console.store.rows import group_of_row
from tests.snapshots.canned_mesh import group_row

INFERENCE = {
    "task_type": "inference",
    "inference": {"n_nodes": 2, "gpu_type": ["H100"]},
    "task": {"command": "serve", "gpu_required": 4, "ports": {"admin": 9000, "http": 8000}},
}


def shown(status="running", document=INFERENCE, **changed):
    row = group_row(1, "llama chat", status, 2, 4, document=document, task_type=document["task_type"], **changed)
    return row, group_of_row(row)


def test_their_shape_and_type_are_known():
    _, group = shown()
    assert (group.task_type, group.n_nodes, group.per_node_gpu, group.gpus) == ("inference", 2, 4, 8)
    assert group.gpu_type == ("H100",) and group.framework == ""
    assert filter_fields(group)["kind"]() == "inference"


def test_the_list_names_what_is_not_training_and_a_reason_comes_first():
    assert shown()[1].why == "inference"
    assert group_of_row(group_row(1, "llama", "running", 2, 8)).why == ""
    reason = {"code": "rebuilding", "text": "it ended and is built again after 1 s", "details": {}}
    assert shown("pending", pending_reason=reason)[1].why == reason["text"]


def test_a_brief_row_and_a_line_of_the_api_say_the_same():
    row, group = shown()
    brief = {name: value for name, value in row.items() if name != "document"}
    brief |= {"n_nodes": 2, "per_node_gpu": 4, "gpu_type": ["H100"], "framework": None}
    assert group_of_row(brief) == group


def test_where_its_ports_are_reached():
    row, _ = shown(addresses=["10.0.0.7", "fd00::7"])
    assert _listens(row) == "admin 10.0.0.7:9000, http 10.0.0.7:8000, admin [fd00::7]:9000, http [fd00::7]:8000"
    assert _listens(shown()[0]) == "" and _listens({}) == ""
