"""What was seen of a rendezvous stands in the record of its group, and changes nothing else."""

from mesh.core.state import rendezvous_record
from tests.unit.state.world import World


def told(world: World, group: str, state: str = "missing", attempt: int = 1, text: str = "missing: rank 1"):
    return world.do("RecordRendezvous", group_id=group, attempt=attempt, state=state, text=text)


def kinds(world: World, group: str) -> list[str]:
    rows = [row for _, row in world.store.scan("event", f"{group}/")]
    return [row["kind"] for row in rows if row["kind"].startswith("rendezvous")]


def test_each_change_is_one_event_and_no_state_moves(monkeypatch):
    world = World({"n1": 1, "n2": 1})
    group = world.submit(2, 1)
    assert told(world, group).code == "not_running"
    assert told(world, "tg-01kb89t3f89j6ct3adhq").code == "no_such_group"
    world.run_up(group)
    assert told(world, group, attempt=2).code == "not_running"
    before = dict(world.group(group))
    for state in ("missing", "missing", "split", "formed"):
        assert told(world, group, state).ok
    row = world.group(group)
    assert kinds(world, group) == ["rendezvous_missing", "rendezvous_split", "rendezvous_formed"]
    assert (row["rendezvous"]["state"], row["rendezvous"]["attempt"]) == ("formed", 1)
    assert {k: v for k, v in row.items() if k not in ("events", "rendezvous")} == {
        k: v for k, v in before.items() if k != "events"
    }
    monkeypatch.setattr(rendezvous_record, "_CHANGES_MAX", 3)
    assert told(world, group, "silent").code == "too_many_changes"


def test_the_next_attempt_begins_anew():
    world = World({"n1": 1, "n2": 1})
    group = world.submit(2, 1)
    world.run_up(group)
    assert told(world, group, "split").ok
    row = world.group(group)
    row["attempt"] = 2
    world.store.put("group", group, row)
    assert told(world, group, "split", attempt=2).ok
    assert kinds(world, group) == ["rendezvous_split"] * 2 and world.group(group)["rendezvous"]["changes"] == 1
