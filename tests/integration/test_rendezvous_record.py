"""What the leader's agent writes of ranks that meet, once a change, and what another leader makes of it."""

from dataclasses import replace

import pytest

from agentd.core.rendezvous import RendezvousLimits, RendezvousNow
from agentd.core.telemetry_blob import NodeNow, TaskNow
from agentd.runtime.memory import Behaviour
from agentd.telemetry.rendezvous_watch import RendezvousWatch
from schemas.commands import command
from tests.integration.telemetry_hosts import telemetry_mesh

PLACE = "10.0.0.1:20000"
LONG = 500.0


@pytest.fixture
async def mesh(tmp_path):
    async with telemetry_mesh(tmp_path, lambda _: Behaviour()) as made:
        yield made


def picture(group_id, connected, watched_s=LONG):
    """Two ranks: the first listens, and the second has connected or not."""
    found = []
    for rank, seen in enumerate((RendezvousNow(PLACE, LONG, True, True, LONG), None)):
        now = seen or RendezvousNow(PLACE, watched_s, False, connected, LONG)
        task = TaskNow(group_id, 1, rank, 2, True, LONG, (), None, None, (), None, None, rendezvous=now)
        found.append((NodeNow(f"n{rank + 1}", True, 2.0, (), (task,)), task))
    return {(group_id, 1): found}


async def recorded(mesh, group_id):
    row, events = (
        await mesh.mesh.query([{"get": ["group", group_id]}, {"scan": ["event", f"{group_id}/", "", 1000]}])
    )["results"]
    return row.get("rendezvous"), [event["kind"] for _, event in events if "rendezvous" in event["kind"]]


async def test_a_change_is_written_once_and_what_formed_is_not_doubted(mesh):
    group_id = await mesh.run_group(2)
    watch = RendezvousWatch(RendezvousLimits(120.0))
    for _ in range(3):
        alerts, _ = watch.judge(picture(group_id, False), 1_000_000)
        await watch.record(mesh.mesh)
    assert [alert.text for alert in alerts] == [
        f"missing: rank 1 (n2) never connected to {PLACE}, 8 min after all ranks were running"
    ]
    assert alerts[0].since_ms == 1_000_000 - 380_000
    seen, kinds = await recorded(mesh, group_id)
    assert kinds == ["rendezvous_missing"] and seen["text"] == alerts[0].text

    heir = RendezvousWatch(RendezvousLimits(120.0))
    heir.judge(picture(group_id, False), 1_000_000)
    await heir.record(mesh.mesh)
    assert (await recorded(mesh, group_id))[1] == kinds, "another leader writes nothing twice"
    for _ in range(2):
        alerts, _ = heir.judge(picture(group_id, True), 1_000_000)
        await heir.record(mesh.mesh)
        assert alerts == []
    assert (await recorded(mesh, group_id))[1] == [*kinds, "rendezvous_formed"]

    # Its connections are closed, and agent and leader are new.
    third = RendezvousWatch(RendezvousLimits(120.0))
    for _ in range(3):
        assert third.judge(picture(group_id, False), 1_000_000)[0] == []
        await third.record(mesh.mesh)
    assert (await recorded(mesh, group_id))[0]["state"] == "formed"


async def test_what_cannot_be_judged_keeps_an_alert_and_writes_nothing(mesh):
    group_id = await mesh.run_group(2)
    watch = RendezvousWatch(RendezvousLimits(120.0))
    alerts, undecided = watch.judge(picture(group_id, False, watched_s=5.0), 1_000_000)
    await watch.record(mesh.mesh)
    assert alerts == [] and list(undecided) == [("rendezvous", group_id, 1)]
    assert await recorded(mesh, group_id) == (None, [])
    ((key, ((node, task), _)),) = picture(group_id, True).items()
    assert watch.judge({key: [(node, replace(task, ranks=1))]}, 1_000_000) == ([], {})


async def test_what_was_seen_is_told_on_where_leader_and_agent_are_new(mesh):
    """The leader's host runs a rank, and its agent was ended: for minutes nobody can judge, and nobody has an alert."""
    group_id = await mesh.run_group(2)
    watch = RendezvousWatch(RendezvousLimits(120.0))
    for _ in range(2):
        before, _ = watch.judge(picture(group_id, False), 1_000_000)
        await watch.record(mesh.mesh)
    seen, kinds = await recorded(mesh, group_id)

    heir = RendezvousWatch(RendezvousLimits(120.0))
    for _ in range(2):
        alerts, undecided = heir.judge(picture(group_id, False, watched_s=5.0), 1_000_000)
        await heir.record(mesh.mesh)
    (alert,) = alerts
    assert (alert.key, alert.level, alert.advice) == (before[0].key, before[0].level, before[0].advice)
    assert alert.text == f"{seen['text']}; now: cannot judge: watched for 5 s only" and undecided == {}
    assert alert.since_ms == seen["at_ms"] and await recorded(mesh, group_id) == (seen, kinds)
    # As soon as it can be judged again, that counts.
    for _ in range(2):
        alerts, _ = heir.judge(picture(group_id, True), 1_000_000)
        await heir.record(mesh.mesh)
    assert alerts == [] and (await recorded(mesh, group_id))[0]["state"] == "formed"


async def test_a_group_that_has_ended_meanwhile_is_left_alone(mesh):
    group_id = await mesh.run_group(2)
    watch = RendezvousWatch(RendezvousLimits(120.0))
    watch.judge(picture(group_id, False), 1_000_000)
    assert (await mesh.mesh.propose(command("StopGroup", group_id=group_id, by="ada")))["ok"]
    await watch.record(mesh.mesh)
    assert (await recorded(mesh, group_id)) == (None, [])
