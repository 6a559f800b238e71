"""The frame around all reducers."""

import pytest

from mesh.core.state.dict_store import DictStore
from mesh.core.state.reducer import REDUCERS, apply
from schemas.commands import COMMANDS, command
from tests.unit.state.world import World


def test_every_command_has_its_reducer():
    assert set(REDUCERS) == set(COMMANDS)


@pytest.mark.parametrize(
    "value",
    [None, 3, {}, {"t": "Explode", "v": 1}, command("StopGroup", at_ms=1, group_id="x", by="a"), command("Noop")],
)
def test_what_is_no_command_changes_nothing(value):
    store = DictStore()
    outcome = apply(store, 1, value)
    assert (outcome.ok, outcome.code) == (False, "invalid_command")
    assert "nothing was changed" in outcome.text
    assert store.take_changes() == []


def test_a_mesh_is_initialised_once():
    world = World()
    fields = {
        "cluster_id": "c1",
        "epoch": 1,
        "profile": "fast",
        "voters": [{"raft_id": 5, "node": "n1", "voter_addr": "h:7461"}],
    }
    assert world.do("InitCluster", **fields).ok
    again = world.do("InitCluster", **{**fields, "cluster_id": "c2"})
    assert again.code == "cluster_exists"
    assert "c1" in again.text
    assert world.store.get("meta", "cluster")["cluster_id"] == "c1"
