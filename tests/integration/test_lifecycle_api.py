"""Resubmit and clone of a group in each state, over the API."""

import pytest

from mesh.memory import MemoryMesh
from schemas.task_group import accepted_task_group
from tests.integration.served_api import AUTH, served
from tests.unit.state.lifecycle import STATES, world_with_group

GROUPS = "/api/v1/task-groups"
# resubmit: the same document as a new group; clone: its document to another path; copy: to the same path.
TABLE = """
state       resubmit       clone  copy
pending     !group_active  201    !checkpoint_path_in_use
scheduling  !group_active  201    !checkpoint_path_in_use
starting    !group_active  201    !checkpoint_path_in_use
running     !group_active  201    !checkpoint_path_in_use
failing     !group_active  201    !checkpoint_path_in_use
pausing     !group_active  201    !checkpoint_path_in_use
paused      !group_active  201    !checkpoint_path_in_use
recovering  !group_active  201    !checkpoint_path_in_use
moving      !group_active  201    !checkpoint_path_in_use
stopping    !group_active  201    !checkpoint_path_in_use
stopped     201            201    201
completed   201            201    201
failed      201            201    201
"""
ROWS = {row[0]: row[1:] for row in (line.split() for line in TABLE.strip().splitlines()[1:])}


def test_the_table_has_every_state():
    assert set(ROWS) == set(STATES)


@pytest.mark.parametrize("state", STATES)
async def test_again_from_each_state(state, tmp_path):
    found = []
    for at, what in enumerate(("resubmit", "clone", "copy")):
        world, group = world_with_group()
        STATES[state](world, group)
        mesh = MemoryMesh()
        for entry in world.log:
            fields = {name: value for name, value in entry.items() if name != "at_ms"}
            await mesh.propose(_framed(fields))
        async with served(tmp_path / str(at), mesh) as client:
            async with client.get(f"{GROUPS}/{group}", headers=AUTH) as response:
                shown = await response.json()
            where, body = GROUPS, shown["config"]
            if what == "resubmit":
                where, body = f"{GROUPS}/{group}/resubmit", None
            elif what == "clone":
                body["training"]["checkpoint_path"] += "-2"
            async with client.post(where, json=body, headers=AUTH) as response:
                said = await response.json()
                found.append(str(response.status) if response.status == 201 else f"!{said['code']}")
            if response.status == 201:
                async with client.get(f"{GROUPS}/{said['group_id']}", headers=AUTH) as response:
                    copy = await response.json()
                assert copy["status"] == "pending" and copy["attempt"] == 0
                assert (copy["resubmit_of"] == group) == (what == "resubmit")
                if what != "clone":
                    assert copy["config"] == shown["config"]
    assert found == ROWS[state]


def _framed(fields):
    """The documents of the unit tests name no framework, which the API asks for."""
    if fields["t"] == "SubmitGroup":
        document = {**fields["document"]}
        document["training"] = document["training"] | {"framework": "ddp", "launcher": "script"}
        fields["document"] = accepted_task_group(document)[0]
    return fields
