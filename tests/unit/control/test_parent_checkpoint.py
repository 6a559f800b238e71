"""A group that goes on from another one's checkpoint: there until it has one itself, and told of each attempt."""

import pytest

from tests.unit.state.world import World, document

PARENT = "tg-01kb89t3f89j6ct3adhq"
TOLD = {"group_id": PARENT, "checkpoint_path": "/data/base", "path": "/data/base/step-500", "step": 500}
OWN = {"path": "/data/run/step-900", "step": 900}


@pytest.fixture
def world():
    return World({"n1": 2, "n2": 2})


def submitted(world, told=TOLD, **over):
    outcome = world.try_submit(document(1, 2, checkpoint_path="/data/run", **over), parent=told)
    assert outcome.ok, outcome
    return outcome.data["group_id"]


def starts(world, group, probe=None):
    """The next attempt's resume decision, carried out."""
    for _ in range(40):
        world.control(1000)
        if world.status(group) == "scheduling":
            break
    world.report(world.tasks(group)[0], "claimed", **({"resume": probe} if probe else {}))
    (start,) = world.control()
    world.obey(group)
    assert world.status(group) == "running"
    return start["resume"]


def texts(world, group, kind):
    return [row["text"] for _, row in world.store.scan("event", f"{group}/") if row["kind"] == kind]


def test_the_parents_until_it_has_its_own_and_never_back(world):
    group = submitted(world)
    first = {"path": "/data/base/step-500", "step": 500, "source": "parent_checkpoint"}
    assert starts(world, group) == first
    world.lose(world.tasks(group)[0]["node"])
    # Nothing was saved before the node was lost: the same beginning once more.
    assert starts(world, group) == first
    world.rejoin("n1")
    world.lose("n2")
    assert starts(world, group, OWN) == {**OWN, "source": "checkpoint_path"}
    assert world.group(group)["parent"] == TOLD


def test_the_timeline_names_the_parent_and_the_step(world):
    group = submitted(world)
    assert texts(world, group, "submitted")[0].endswith(f"It goes on from checkpoint /data/base/step-500 of {PARENT}.")
    starts(world, group)
    (said,) = texts(world, group, "starting")
    assert f"from checkpoint /data/base/step-500, step 500, of its parent {PARENT}" in said
    world.lose(world.tasks(group)[0]["node"])
    starts(world, group, OWN)
    assert "from checkpoint /data/run/step-900." in texts(world, group, "starting")[1]


def test_a_checkpoint_whose_step_nobody_knows(world):
    group = submitted(world, {**TOLD, "path": "/data/base/epoch_3", "step": None})
    assert starts(world, group) == {"path": "/data/base/epoch_3", "step": None, "source": "parent_checkpoint"}
    assert f"/data/base/epoch_3 of its parent {PARENT}" in texts(world, group, "starting")[0]


def test_the_ledger_tells_what_it_began_from(world):
    group = submitted(world)
    starts(world, group)
    (row,) = [row for _, row in world.store.scan("save", f"{group}/")]
    assert (row["pick"], row["step"], row["restores"]) == ("/data/base/step-500", 500, [1])


def test_without_one_nothing_of_it_is_in_the_row(world):
    assert "parent" not in world.group(world.submit(1, 1))
