"""Sessions beside a rank are on its group's timeline, and none begins where no rank runs."""

from mesh.core.state import exec_record
from tests.unit.state.world import World


def opened(world: World, group: str, **fields: object):
    usual = {"group_id": group, "attempt": 1, "rank": 0, "by": "ada", "phase": "opened", "text": "sh"}
    return world.do("RecordExec", **(usual | fields))


def test_only_a_running_rank_of_the_current_attempt_takes_a_session(monkeypatch):
    world = World({"n1": 2})
    group = world.submit(2, 1)
    assert opened(world, group).code == "rank_not_running"
    assert opened(world, "tg-01kb89t3f89j6ct3adhq").code == "no_such_group"
    world.join("n2", 2)
    world.run_up(group)
    assert opened(world, group, rank=7).code == "rank_not_running"
    assert opened(world, group, attempt=2).code == "rank_not_running"
    before = world.group(group)["events"]
    assert opened(world, group).ok
    assert opened(world, group, phase="ended", text="sh: exit code 0 after 3 s").ok
    rows = [row for _, row in world.store.scan("event", f"{group}/")][before:]
    assert [(row["kind"], row["rank"], row["node"], row["data"]) for row in rows] == [
        ("exec_opened", 0, rows[0]["node"], {"by": "ada"}),
        ("exec_ended", 0, rows[0]["node"], {"by": "ada"}),
    ]
    assert rows[0]["text"] == "ada opened a session on rank 0: sh"
    monkeypatch.setattr(exec_record, "SESSIONS_MAX", 1)
    assert opened(world, group).code == "too_many_events"
    # Its end is told in any case, also after the rank's.
    assert opened(world, group, phase="ended").ok
