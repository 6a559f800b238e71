"""Who had which file of a group is in the audit, and only who may."""

import pytest

from tests.unit.state.test_api_keys import entries, put_key
from tests.unit.state.world import World

PATH = {"attempt": 1, "rank": 0, "path": "/checkpoint/step-9/model.pt"}


def running() -> tuple[World, str]:
    world = World({"n1": 2})
    group = world.submit(1, 1)
    world.store.put("group", group, {**world.group(group), "tenant": "red"})
    world.run_up(group)
    return world, group


@pytest.mark.parametrize("name", ["RecordDownload", "RecordUpload"])
def test_an_access_changes_nothing_and_stands_in_the_audit(name):
    world, group = running()
    caller = put_key(world, "ada", "member", "red")
    before = {entity: rows for entity, rows in world.rows().items() if not entity.startswith("audit")}
    assert world.do(name, group_id=group, caller=caller, **PATH).ok
    assert {entity: rows for entity, rows in world.rows().items() if not entity.startswith("audit")} == before
    said = entries(world)[-1]
    assert (said["what"], said["target"], said["details"]) == (name, group, {"path": PATH["path"]})
    assert world.do(name, group_id=group, caller=caller, **{**PATH, "rank": 1}).code == "no_such_task"
    assert world.do(name, group_id=group, caller=caller, **{**PATH, "attempt": 2}).code == "no_such_task"
    missing = {"group_id": "tg-01kb89t3f89j6ct3adhq", **PATH}
    assert world.do(name, caller=caller, **missing).code == "no_such_group"


@pytest.mark.attack(25)
def test_a_viewer_reads_and_does_not_write_and_another_tenant_does_neither():
    world, group = running()
    viewer, stranger = put_key(world, "v", "viewer", "red"), put_key(world, "s", "member", "blue")
    assert world.do("RecordDownload", group_id=group, caller=viewer, **PATH).ok
    assert world.do("RecordUpload", group_id=group, caller=viewer, **PATH).code == "forbidden"
    for name in ("RecordDownload", "RecordUpload"):
        refused = world.do(name, group_id=group, caller=stranger, **PATH)
        assert (refused.code, refused.text) == ("no_such_group", f"group {group} does not exist.")
    assert [said["ok"] for said in entries(world)[-3:]] == [False, False, False]
