"""Keys, signers, who may change what by the state's own judgement, and what of it the audit keeps."""

from typing import Any
from unittest import mock

import pytest

from mesh.core.state import audit
from mesh.core.state.audit import PRUNE
from mesh.core.state.authority import NEEDS
from schemas.commands import COMMANDS
from schemas.limits import AUDIT_TTL_MS, SIGNERS_KEPT
from tests.unit.state.world import World, document

ROOT = {"kind": "mesh", "name": "mesh", "node": "n1"}
GROUP_FIELDS = {"tenant": "blue", "user": "u", "warnings": [], "resubmit_of": None}


def put_key(world: World, key_id: str, role: str = "member", tenant: str = "red", **over: Any) -> dict[str, Any]:
    """The caller that this key is."""
    fields = {"key_id": key_id, "name": key_id, "role": role, "tenant": tenant, "sha256": "0" * 64, **over}
    assert world.do("PutKey", caller=ROOT, **fields).ok
    return {"kind": "person", "name": key_id, "node": "n1", "key": key_id}


def entries(world: World) -> list[dict[str, Any]]:
    return [row for _, row in world.store.scan("audit")]


def untouched(world: World) -> dict[str, Any]:
    return {entity: rows for entity, rows in world.rows().items() if not entity.startswith("audit")}


def test_a_key_is_made_once_and_revoked_once():
    world = World()
    put_key(world, "k1")
    assert world.do("PutKey", caller=ROOT, key_id="k1", name="x", role="admin", tenant="t", sha256="1").code == (
        "key_exists"
    )
    assert world.do("RevokeKey", caller=ROOT, key_id="k1").ok
    row = world.store.get("api_key", "k1")
    assert row["role"] == "member" and row["revoked_by"] == "mesh" and row["revoked_ms"] == world.now_ms
    assert world.do("RevokeKey", caller=ROOT, key_id="k1").code == "already_revoked"
    assert world.store.get("api_key", "k1") == row
    assert world.do("RevokeKey", caller=ROOT, key_id="k2").code == "no_such_key"


def test_only_a_dead_key_makes_room():
    with mock.patch("mesh.core.state.api_keys.API_KEYS_MAX", 2):
        world = World()
        put_key(world, "k1")
        put_key(world, "k2")
        fields = {"name": "x", "role": "viewer", "tenant": "t", "sha256": "1"}
        assert world.do("PutKey", caller=ROOT, key_id="k3", **fields).code == "too_many_keys"
        world.do("RevokeKey", caller=ROOT, key_id="k2")
        assert world.do("PutKey", caller=ROOT, key_id="k3", **fields).ok
        assert [key for key, _ in world.store.scan("api_key")] == ["k1", "k3"]


def test_two_agents_make_one_signer_and_the_one_before_is_kept():
    world = World()
    assert world.do("PutSigner", signer_id="s1", secret=b"1" * 32, after="").ok
    assert world.do("PutSigner", signer_id="s2", secret=b"2" * 32, after="").code == "signer_exists"
    for at in range(2, 6):
        assert world.do("PutSigner", signer_id=f"s{at}", secret=b"x", after=f"s{at - 1}").ok
    assert [key for key, _ in world.store.scan("signer")] == ["s4", "s5"]
    assert SIGNERS_KEPT == 2


@pytest.mark.parametrize("role", ["viewer", "member", "operator"])
def test_keys_are_given_by_admins_only(role):
    world = World()
    caller = put_key(world, "k1", role)
    before = untouched(world)
    fields = {"key_id": "k2", "name": "x", "role": "admin", "tenant": "t", "sha256": "1"}
    assert world.do("PutKey", caller=caller, **fields).code == "forbidden"
    assert world.do("RevokeKey", caller=caller, key_id="k1").code == "forbidden"
    assert untouched(world) == before
    assert world.do("PutKey", caller=put_key(world, "k9", "admin"), **fields).ok


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(NEEDS)))
def test_what_agents_do_no_person_may_ask_for(name):
    """Also what a later version adds without saying who may."""
    from tests.unit.schemas.test_commands import SAMPLES

    world = World({"n1": 1})
    caller = put_key(world, "k1", "admin")
    before = untouched(world)
    assert world.do(name, **{**SAMPLES[name], "caller": caller}).code == "forbidden"
    assert untouched(world) == before


def dead(world: World, way: str) -> dict[str, Any]:
    expires_ms = world.now_ms + 50 if way == "expired" else None
    caller = put_key(world, "k1", "admin", expires_ms=expires_ms)
    if way == "revoked":
        world.do("RevokeKey", caller=ROOT, key_id="k1")
    if way == "unknown":
        return {**caller, "key": "k77"}
    if way == "nameless":
        del caller["key"]
    world.now_ms += 50
    return caller


@pytest.mark.attack(25, 30)
@pytest.mark.parametrize("way", ["expired", "revoked", "unknown", "nameless"])
@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_key_that_died_meanwhile_changes_nothing(name, way):
    from tests.unit.schemas.test_commands import SAMPLES

    world = World({"n1": 1})
    caller = dead(world, way)
    before = untouched(world)
    outcome = world.do(name, **{**SAMPLES[name], "caller": caller})
    assert outcome.code == "unauthorised" and "nothing was changed" in outcome.text
    assert untouched(world) == before
    assert entries(world)[-1]["code"] == "unauthorised"


def test_a_refused_role_is_not_remembered_with_the_request():
    world = World()
    group = world.submit(1, 1)
    viewer, member = put_key(world, "v", "viewer", "default"), put_key(world, "m", "member", "default")
    request = {"client": "c", "id": "r1", "digest": "d"}
    world.store.put("group", group, {**world.group(group), "tenant": "default"})
    fields = {"group_id": group, "by": "x", "request": request}
    assert world.do("StopGroup", caller=viewer, **fields).code == "forbidden"
    assert world.do("StopGroup", caller=member, **fields).ok


@pytest.mark.parametrize("name", ["StopGroup", "DeleteGroup"])
def test_the_group_of_another_tenant_is_answered_as_none(name):
    world = World()
    theirs = world.submit(1, 1)
    more = {"by": "x"} if name == "StopGroup" else {}
    caller = put_key(world, "k1", "member", "red")
    nowhere = theirs[:-1] + ("0" if theirs[-1] != "0" else "1")
    before = untouched(world)
    hidden = world.do(name, group_id=theirs, caller=caller, **more)
    absent = world.do(name, group_id=nowhere, caller=caller, **more)
    assert hidden.code == absent.code == "no_such_group"
    assert hidden.text.replace(theirs, nowhere) == absent.text and hidden.data == absent.data
    assert untouched(world) == before
    assert world.do("StopGroup", group_id=theirs, by="x", caller=put_key(world, "op", "operator", "red")).ok


def test_a_repeated_delete_finds_its_answer_although_the_group_is_gone():
    world = World()
    caller = put_key(world, "k1", "member", "blue")
    group = "tg-01kb89t3f89j6ct3adhq"
    assert world.do("SubmitGroup", group_id=group, document=document(), caller=caller, **GROUP_FIELDS).ok
    world.do("StopGroup", group_id=group, by="x", caller=caller)
    fields = {"group_id": group, "caller": caller, "request": {"client": "c", "id": "r1", "digest": "d"}}
    assert world.do("DeleteGroup", **fields).ok
    count = len(entries(world))
    assert world.do("DeleteGroup", **fields).ok
    assert len(entries(world)) == count


def test_nobody_submits_for_another_tenant_or_learns_its_paths():
    world = World()
    red, blue = put_key(world, "r", "member", "red"), put_key(world, "b", "member", "blue")
    first, second = "tg-01kb89t3f89j6ct3adhq", "tg-01kb89t3f89j6ct3adhr"
    body = document(checkpoint_path="/data/run")
    assert world.do("SubmitGroup", group_id=first, document=body, caller=red, **GROUP_FIELDS).code == "forbidden"
    assert world.do("SubmitGroup", group_id=first, document=body, caller=blue, **GROUP_FIELDS).ok
    taken = world.do("SubmitGroup", group_id=second, document=body, caller=red, **{**GROUP_FIELDS, "tenant": "red"})
    assert taken.code == "checkpoint_path_in_use" and first not in taken.text and taken.data == {}


def test_the_audit_says_who_did_what_from_where_and_how_it_ended():
    world = World()
    caller = put_key(world, "k1", "member", "blue")
    group = "tg-01kb89t3f89j6ct3adhq"
    world.do("SubmitGroup", group_id=group, document=document(), caller=caller, **GROUP_FIELDS)
    world.do("DeleteGroup", group_id=group, caller=caller)
    world.do("StopGroup", group_id=group, by="another")  # by an agent itself: the timeline says it
    made, submitted, refused = entries(world)
    assert (made["who"], made["what"], made["target"], made["ok"]) == ("mesh", "PutKey", "k1", True)
    assert made["details"] == {"tenant": "blue", "role": "member", "name": "k1"}
    assert "0" * 64 not in repr(made)
    assert (submitted["who"], submitted["key"], submitted["node"]) == ("k1", "k1", "n1")
    assert (refused["what"], refused["target"], refused["ok"], refused["code"]) == (
        "DeleteGroup",
        group,
        False,
        "group_active",
    )


def test_the_audit_is_bounded_by_number_and_by_age():
    with mock.patch.object(audit, "AUDIT_MAX", 10):
        world = World()
        for at in range(40):
            world.do("RevokeKey", caller=ROOT, key_id=f"k{at}")
        assert [row["target"] for row in entries(world)] == [f"k{at}" for at in range(30, 40)]
        assert world.store.get("audit_span", "span") == {"first": 31, "next": 41}
        world.now_ms += AUDIT_TTL_MS
        world.do("RevokeKey", caller=ROOT, key_id="last")
        assert len(entries(world)) == 10 - PRUNE + 1
