"""A command of a later release is refused, never misread, until every voter can read it."""

import pytest

from mesh.core.state.dict_store import DictStore
from schemas.commands import command, encode_command
from schemas.errors import InvalidInput
from schemas.versions import SINCE, SUPPORTED, version_needed, version_refusal
from tests.unit.state.world import World

VOTERS = [{"raft_id": n, "node": f"n{n}", "voter_addr": f"10.0.0.{n}:7461"} for n in (1, 2, 3)]


def world(**supports: int) -> World:
    made = World()
    made.do("InitCluster", cluster_id="c", epoch=1, profile="fast", voters=VOTERS)
    for node, upto in supports.items():
        assert register(made, node, supports=upto).ok
    return made


def register(world: World, node: str, **more: int):
    return world.do(
        "RegisterNode", node_id=node, uid=f"u-{node}", api_addr="10.0.0.1:7460", voter_addr=None, gpus=[],
        gpu_backend="none", runtime="memory", labels={}, version="x", cpus=1, memory_mb=1, **more,
    )  # fmt: skip


def cluster_version(of: World) -> int:
    row = of.store.get("meta", "cluster")
    assert row is not None
    return int(row["cluster_version"])


def test_it_rises_only_when_every_voter_supports_it():
    mesh = world(n1=2, n2=2)
    assert mesh.do("RaiseVersion", to=2, by="ada").code == "version_unsupported"
    register(mesh, "n3")
    register(mesh, "member", supports=2)
    refused = mesh.do("RaiseVersion", to=2, by="ada")
    assert refused.code == "version_unsupported" and "n3 (up to 1)" in refused.text and "n1" not in refused.text
    assert cluster_version(mesh) == 1
    register(mesh, "n3", supports=3)
    assert mesh.do("RaiseVersion", to=2, by="ada").ok and cluster_version(mesh) == 2
    assert mesh.do("RaiseVersion", to=1, by="ada").code == "already_raised" and cluster_version(mesh) == 2
    assert "n1 (up to 2), n2 (up to 2)" in mesh.do("RaiseVersion", to=3, by="ada").text


def test_what_needs_more_changes_nothing_until_then():
    mesh = world(n1=2, n2=2, n3=2)
    mesh.store.take_changes()
    request = {"client": "c", "id": "r", "digest": "d"}
    refused = mesh.do("CordonNode", node_id="n1", by="ada", reason="", needs=2, request=request)
    assert refused.code == "version_too_low" and not mesh.store.take_changes()
    assert mesh.store.get("request", "c/r") is None, "the same request may be allowed later"
    mesh.do("RaiseVersion", to=2, by="ada")
    assert mesh.do("CordonNode", node_id="n1", by="ada", reason="", needs=2, request=request).ok


def test_a_release_that_does_not_know_the_mesh_stays_out():
    mesh = world(n1=2, n2=2, n3=2)
    mesh.do("RaiseVersion", to=2, by="ada")
    assert register(mesh, "n4").code == "release_too_old"
    assert register(mesh, "n1", supports=1).code == "release_too_old"
    assert register(mesh, "n4", supports=2).ok


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"t": "Old"}, 1), ({"t": "New"}, 3), ({"t": "Old", "field": 0}, 2), ({"t": "Old", "needs": 4}, 4),
        ({"t": "New", "needs": 2}, 3),
    ],
)  # fmt: skip
def test_a_command_and_a_field_have_their_version(given, needed):
    assert version_needed(given, {"New": 3, "Old.field": 2}) == needed


def test_this_release_supports_all_that_it_knows():
    assert all(since <= SUPPORTED for since in SINCE.values())
    assert version_refusal(command("Noop"), 1) is None
    problem = version_refusal(command("Noop", needs=2), 1)
    assert problem is not None and problem.code == "version_too_low" and "not proposed" in problem.message


@pytest.mark.parametrize("needs", [0, -1, True, "2", 1.5, None, 1 << 40])
def test_a_version_is_a_whole_number(needs):
    with pytest.raises(InvalidInput):
        encode_command(command("Noop", needs=needs))


def test_without_a_mesh_it_is_the_first():
    mesh = World()
    assert isinstance(mesh.store, DictStore) and mesh.do("RaiseVersion", to=2, by="ada").code == "no_cluster"
    assert mesh.do("Noop", needs=2).code == "version_too_low"
