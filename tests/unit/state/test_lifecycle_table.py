"""Every state of a group against everything that can happen to it: what comes of it at once, and where it ends up. The
expectations are the tables in tests/data/lifecycle."""

from pathlib import Path

import pytest

from tests.property.state_invariants import violations
from tests.unit.state.lifecycle import OPERATIONS, STATES, bring_to_rest, seen, world_with_group

DATA = Path(__file__).parents[2] / "data" / "lifecycle"


def cells(name: str) -> dict[tuple[str, str], str]:
    lines = (DATA / name).read_text().splitlines()
    head, *rows = (line.split() for line in lines if line and not line.startswith("#"))
    return {(row[0], operation): word for row in rows for operation, word in zip(head[1:], row[1:], strict=True)}


AT_ONCE, AT_REST = cells("at_once.txt"), cells("at_rest.txt")


def test_the_tables_have_every_state_and_every_operation():
    assert set(AT_ONCE) == set(AT_REST) == {(state, operation) for state in STATES for operation in OPERATIONS}


@pytest.mark.parametrize("state", STATES)
def test_what_comes_of_it(state):
    found, left = {}, {}
    for name, operation in OPERATIONS.items():
        world, group = world_with_group()
        STATES[state](world, group)
        found[state, name] = seen(world, group, operation(world, group))
        assert violations(world.store) == [], name
        left[state, name] = bring_to_rest(world, group)
        assert violations(world.store) == [], name
        if left[state, name] != "running":
            assert not [key for key, _ in world.store.scan("hold") if group in key], f"{name}: cards are left"
    assert found == {cell: word for cell, word in AT_ONCE.items() if cell[0] == state}
    assert left == {cell: word for cell, word in AT_REST.items() if cell[0] == state}
