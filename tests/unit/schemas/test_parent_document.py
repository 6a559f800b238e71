"""A document that goes on from another group's checkpoint: how it names it, and what it takes from the other's."""

import pytest

from schemas.lexemes import Number
from schemas.task_group import ParentNamed, check_task_group, parent_of, with_inherited
from tests.unit.schemas.documents import DELETED, accepted, codes, good

PARENT = "tg-01kb89t3f89j6ct3adhq"


def child(**training):
    fields = {"parent_checkpoint": PARENT, "checkpoint_path": "/data/ckpt/child", **training}
    return {
        "name": "child of llama",
        "task_type": "training",
        "training": {name: value for name, value in fields.items() if value is not DELETED},
    }


@pytest.mark.parametrize(
    ("named", "means"),
    [(PARENT, ParentNamed(PARENT, None)), (f"{PARENT}@0", ParentNamed(PARENT, 0)), (f"{PARENT}@500", (PARENT, 500))],
)
def test_a_group_or_one_of_its_steps(named, means):
    assert parent_of(child(parent_checkpoint=named)) == means
    kept = accepted(with_inherited(child(parent_checkpoint=named), accepted(good())))
    assert kept["training"]["parent_checkpoint"] == named


@pytest.mark.parametrize(
    "named",
    [
        *("", "x", "tg-1", "/data/ckpt/llama", f"{PARENT}@", f"{PARENT}@-1", f"{PARENT}@05", f"{PARENT}@1e3"),
        *(f"{PARENT}@{10**15}", f"{PARENT} ", f"{PARENT}\n", PARENT.upper(), f"{PARENT}/step-5", "rq" + PARENT[2:]),
        *(None, 7, Number("7"), True, [PARENT], {"group": PARENT}),
    ],
)
def test_what_names_none_is_refused_and_inherits_nothing(named):
    assert parent_of(child(parent_checkpoint=named)) is None
    assert "training.parent_checkpoint" in codes(good(training__parent_checkpoint=named))


def test_what_is_left_out_is_the_parents_and_what_is_there_wins():
    parent = accepted(
        good(
            training__hyper_params={"lr": "1e-4", "warmup": "010"},
            training__dataset_path="/data/set",
            training__keep_last_n=3,
            task__env={"A": "1", "B": " two\t"},
        )
    )
    document = accepted(with_inherited(child(hyper_params={"lr": Number("1.0e-5")}, n_nodes=1), parent))
    training, task = document["training"], document["task"]
    assert training["hyper_params"] == {"lr": "1.0e-5", "warmup": "010"}
    assert (training["dataset_path"], training["keep_last_n"], training["framework"]) == ("/data/set", 3, "ddp")
    assert (training["n_nodes"], training["per_node_gpu"], training["world_size"]) == (1, 4, 4)
    assert training["checkpoint_path"] == "/data/ckpt/child"
    assert (task["command"], task["env"], task["gpu_required"]) == ("torchrun t.py", {"A": "1", "B": " two\t"}, 4)
    replaced = {**child(), "task": {"env": {"C": "3"}}}
    assert accepted(with_inherited(replaced, parent))["task"]["env"] == {"C": "3"}


def test_where_the_parent_itself_began_is_not_inherited():
    parent = accepted(good(training__resume_from_checkpoint="/data/base/step-1"))
    assert "resume_from_checkpoint" not in accepted(with_inherited(child(), parent))["training"]
    grandchild = with_inherited(child(), accepted(with_inherited(child(), accepted(good()))))
    assert grandchild["training"]["parent_checkpoint"] == PARENT


def test_what_contradicts_the_parents_is_refused():
    parent = accepted(good())
    assert "task.gpu_required" in codes(with_inherited(child(per_node_gpu=2), parent))
    assert "training.n_nodes" in codes(with_inherited(child(n_nodes=None), parent))
    assert "training.hyper_params" in codes(with_inherited(child(hyper_params=None), parent))
    assert "task" in codes(with_inherited({**child(), "task": "python"}, parent))


def test_it_has_a_directory_of_its_own_and_begins_in_one_place():
    parent = accepted(good())
    assert codes(with_inherited(child(checkpoint_path=DELETED), parent)) == {
        "training.checkpoint_path": "missing_field"
    }
    twice = with_inherited(child(resume_from_checkpoint="/data/base/step-1"), parent)
    assert codes(twice) == {"training.parent_checkpoint": "begins_twice"}


def test_nothing_is_mounted_where_the_parents_checkpoints_are_seen():
    mounts = [{"source": "/data/code", "target": "/parent/code"}]
    given = good(task__image="x:1", task__mounts=mounts)
    assert check_task_group(given).document is not None
    given["training"]["parent_checkpoint"] = PARENT
    assert codes(given) == {"task.mounts[0].target": "mount_twice"}


def test_other_types_have_no_parent():
    document = {**child(), "task_type": "container", "task": {"command": "x", "gpu_required": 0}}
    assert parent_of(document) is None
