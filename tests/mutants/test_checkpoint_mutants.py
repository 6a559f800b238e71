"""Each deliberate bug in what is resumed from and removed is found by the scenario that names it; without it that one
holds."""

import json

import pytest

from schemas.rules.checkpoints.memory import MemoryDirectory, MemoryFile
from schemas.rules.checkpoints.retention import plan_retention
from tests.mutants.checkpoint_mutants import MUTANTS
from tests.unit.state.test_agreement import NOTHING, THERE, claim, submitted
from tests.unit.state.test_saves import running, save, stop_after
from tests.unit.state.world import World


def nothing_starts_where_nodes_disagree() -> bool:
    world = World({"n1": 2, "n2": 2})
    group = submitted(world)
    claim(world, group, THERE, NOTHING)
    world.control()
    return world.status(group) == "pending"


def the_last_complete_one_stays() -> bool:
    tree = MemoryDirectory()
    for step, data in ((1, b"x"), (2, b"")):
        meta = MemoryFile(json.dumps({"step": step}).encode(), step)
        tree.entries[f"step-{step}"] = MemoryDirectory({"meta.json": meta, "w": MemoryFile(data, step)})
    return plan_retention(tree, "ddp", 1).remove == ()


def a_stop_waits_for_a_new_one() -> bool:
    world = World({"n1": 2, "n2": 2})
    sees = {**THERE, "mark": "m20"}
    group = running(world, {"path": "/data/run/step-20", "step": 20, "source": "checkpoint_path"}, sees)
    stop_after(world, group)
    save(world, group, 20)
    return world.status(group) == "running"


SCENARIOS = {
    "rank-0-decides-alone": nothing_starts_where_nodes_disagree,
    "broken-ones-count-as-kept": the_last_complete_one_stays,
    "a-known-checkpoint-is-news": a_stop_waits_for_a_new_one,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_and_the_product_is_not(name):
    scenario = SCENARIOS[name]
    assert scenario()
    with MUTANTS[name]():
        assert not scenario()
