"""Which checkpoint of a parent is meant, and what speaks against it."""

import pytest

from agentd.core.parent_checkpoint import chosen, may_vanish, same_directory
from schemas.errors import Finding
from schemas.task_group import ParentNamed

PARENT = "tg-01kb89t3f89j6ct3adhq"


def save(pick, step, **over):
    return {"pick": pick, "step": step, "complete": True, "removed_ms": None, **over}


def group(saved=None, **over):
    row = {"group_id": PARENT, "checkpoint_path": "/data/a", "status": "completed", "saved": saved, **over}
    return {"document": {"training": {}}, **row}


SAVES = [
    save("step-10", 10),
    save("step-20", 20, removed_ms=5),
    save("step-30", 30, complete=False),
    save("/data/base/step-40", 40),
    save("checkpoints/step-50", 50),
]
NEWEST = {"pick": "checkpoints/step-50", "step": 50}


@pytest.mark.parametrize(
    ("step", "path"),
    [(None, "/data/a/checkpoints/step-50"), (50, "/data/a/checkpoints/step-50"), (10, "/data/a/step-10")],
)
def test_the_newest_or_the_one_that_is_named(step, path):
    told = {"group_id": PARENT, "checkpoint_path": "/data/a", "path": path, "step": step or 50}
    assert chosen(ParentNamed(PARENT, step), group(NEWEST), SAVES) == told


@pytest.mark.parametrize("step", [0, 11, 20, 30, 40])
def test_one_that_is_removed_incomplete_or_not_its_own_is_none(step):
    found = chosen(ParentNamed(PARENT, step), group(NEWEST), SAVES)
    assert isinstance(found, Finding) and found.code == "no_parent_checkpoint"
    assert f"step {step} " in found.message and "steps 50, 10." in found.message and found.hint


def test_a_parent_that_saved_nothing():
    for row in (group(), group(checkpoint_path=None)):
        found = chosen(ParentNamed(PARENT, None), row, [])
        assert isinstance(found, Finding) and found.path == "training.parent_checkpoint"


def test_a_step_saved_twice_and_one_without_a_number():
    again = [save("step-10", 10), save("epoch_1", None), save("step-10b", 10)]
    found = chosen(ParentNamed(PARENT, 10), group(), again)
    assert not isinstance(found, Finding) and found["path"] == "/data/a/step-10b"
    found = chosen(ParentNamed(PARENT, None), group({"pick": "epoch_1", "step": None}), again)
    assert not isinstance(found, Finding) and (found["path"], found["step"]) == ("/data/a/epoch_1", None)


@pytest.mark.parametrize(
    ("own", "refused"),
    [("/data/a", True), ("/data/a/", True), ("/data", True), ("/data/ab", False), ("/data/a/b", False), ("/x", False)],
)
def test_the_own_directory_does_not_hold_the_parents(own, refused):
    assert (same_directory(own, {"group_id": PARENT, "checkpoint_path": "/data/a"}) is not None) == refused


def test_one_that_may_be_removed_before_it_is_read_is_warned_of():
    told = {"group_id": PARENT, "path": "/data/a/step-10"}
    keeping = {"document": {"training": {"keep_last_n": 2}}}
    warned = may_vanish(group(status="running", **keeping), told)
    assert warned is not None and "/data/a/step-10 may be removed" in warned["message"]
    assert may_vanish(group(status="running"), told) is None
    assert may_vanish(group(**keeping), told) is None
