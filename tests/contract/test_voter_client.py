"""One contract for the two ways to the state: VoterClient on a real voter process, and MemoryMesh."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mesh.client import MeshClient
from mesh.memory import MemoryMesh
from schemas.commands import command
from schemas.errors import Conflict, HeteroFlowError, InvalidInput
from tests.integration.voters import init, register, voters
from tests.unit.state.lifecycle import STATES, world_with_group
from tests.waiting import eventually

ROSTER = {
    "cluster_id": "cluster-t",
    "epoch": 1,
    "voters": [{"raft_id": 1, "node": "n1", "voter_addr": "127.0.0.1:1", "api_addr": "127.0.0.1:2"}],
}


@pytest.fixture(params=["memory", "socket", "websocket"])
async def mesh(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MeshClient]:
    if request.param == "memory":
        yield MemoryMesh(node="n1", cluster_id="cluster-t")
        return
    async with voters(tmp_path, 1) as running:
        running.start_all()
        client = running.client(sockets=request.param == "socket")
        await client.connect()
        while client.leader is None:
            await client.leader_change()
        yield client


async def take(frames: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    async with asyncio.timeout(8):
        while True:
            frame = await anext(frames)
            if "snapshot" in frame or frame["changes"]:
                return frame


def changed(frame: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entity, key) for entity, key, _ in frame["changes"]]


async def test_a_proposal_is_applied_when_it_is_answered(mesh: MeshClient) -> None:
    answer = await mesh.propose(init(ROSTER))
    assert (answer["ok"], answer["code"], answer["text"], answer["data"]["cluster_id"]) == (True, "", "", "cluster-t")
    read = await mesh.query([{"get": ["meta", "cluster"]}, {"get": ["meta", "nothing"]}, {"scan": ["node"]}])
    assert read["idx"] >= answer["idx"]
    cluster, nothing, nodes = read["results"]
    assert (cluster["cluster_id"], nothing, nodes) == ("cluster-t", None, [])
    assert cluster["created_ms"] > 1_600_000_000_000


async def test_a_refusal_is_an_answer_with_its_reason(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    answer = await mesh.propose(init(ROSTER))
    assert answer["ok"] is False
    assert answer["code"] and answer["text"]


async def test_a_malformed_command_is_never_proposed(mesh: MeshClient) -> None:
    before = (await mesh.status())["last"]
    for wrong in (
        {},
        {"v": 1, "t": "Nothing"},
        command("Noop", payload=b"", more=1),
        command("Noop", payload="caf\udce9"),
    ):
        with pytest.raises(InvalidInput) as refused:
            await mesh.propose(wrong)
        assert refused.value.code == "invalid_command"
    assert (await mesh.status())["last"] == before


async def test_a_repeated_request_gets_the_first_answer_and_does_nothing_more(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    request = {"client": "c", "id": "one", "digest": "d"}
    first = await mesh.propose({**register("n1"), "request": request})
    again = await mesh.propose({**register("n1"), "request": request})
    assert (again["ok"], again["data"]) == (first["ok"], first["data"])
    other = await mesh.propose({**register("n1"), "request": {**request, "digest": "e"}})
    assert (other["ok"], other["code"]) == (False, "request_conflict")


async def test_a_command_of_an_old_term_is_refused(mesh: MeshClient) -> None:
    assert mesh.leader is not None
    term = mesh.leader.term
    assert (await mesh.propose(command("Noop", payload=b"x"), term=term))["ok"]
    with pytest.raises(Conflict) as refused:
        await mesh.propose(command("Noop", payload=b"x"), term=term + 1)
    assert refused.value.code == "planned_in_old_term"


@pytest.mark.parametrize("state", ["paused", "moving", "failed"])
async def test_the_life_of_a_group_is_the_same_on_every_carrier(mesh: MeshClient, state: str) -> None:
    """What the reducers made of it in this process, sent again command by command: the same rows but for times and
    indexes."""
    world, group_id = world_with_group()
    STATES[state](world, group_id)
    world.do("ResumeGroup", group_id=group_id, by="ada")
    world.do("FailGroup", group_id=group_id, attempt=1, over="wait_over")
    indexes: dict[int, int] = {}
    for idx, entry in enumerate(world.log, 1):
        sent = {name: value for name, value in entry.items() if name != "at_ms"}
        if entry["t"] == "TaskReports":  # a token is the index of the bind
            sent["reports"] = [told | {"token": indexes[told["token"]]} for told in entry["reports"]]
        indexes[idx] = (await mesh.propose(sent))["idx"]
    read = await mesh.query([{"get": ["group", group_id]}, {"scan": ["event", f"{group_id}/"]}])
    row, events = read["results"]
    assert _timeless(row) == _timeless(world.group(group_id))
    assert [event["kind"] for _, event in events] == world.kinds(group_id)


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.endswith(("_ms", "_idx")) and name != "failure"}


async def test_indexes_rise_with_every_command(mesh: MeshClient) -> None:
    answers = await asyncio.gather(*[mesh.propose(command("Noop", payload=b"x")) for _ in range(50)])
    indexes = [a["idx"] for a in answers]
    assert len(set(indexes)) == 50
    assert max(indexes) - min(indexes) == 49


async def test_queries_page_and_refuse_nonsense(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    for n in range(5):
        await mesh.propose(register(f"node-{n}", f"u{n}"))
    first = (await mesh.query([{"scan": ["node", "node-", "", 2]}], level="stale"))["results"][0]
    rest = (await mesh.query([{"scan": ["node", "node-", first[-1][0], 10]}]))["results"][0]
    assert [key for key, _ in first + rest] == [f"node-{n}" for n in range(5)]
    assert (await mesh.query([{"groups": {}}]))["results"] == [{"groups": [], "next": None}]
    for reads, level in (
        ([], "linearizable"),
        ([{"drop": ["node"]}], "stale"),
        ([{"scan": ["node"]}], "sometimes"),
        ([{"get": ["node", "caf\udce9"]}], "stale"),
    ):
        with pytest.raises(InvalidInput):
            await mesh.query(reads, level=level)


async def test_a_read_waits_for_the_index_asked_for(mesh: MeshClient) -> None:
    answer = await mesh.propose(command("Noop", payload=b"x"))
    assert (await mesh.query([{"scan": ["node"]}], level="stale", min_idx=answer["idx"]))["idx"] >= answer["idx"]
    with pytest.raises(HeteroFlowError) as refused:
        await mesh.query([{"scan": ["node"]}], level="stale", min_idx=answer["idx"] + 1000, timeout_s=2.5)
    assert refused.value.code == "lagging"


async def test_a_subscription_starts_with_a_snapshot_and_goes_on_with_changes(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    frames = mesh.subscribe({"all": True})
    snapshot = await take(frames)
    assert [(entity, key) for entity, key, _ in snapshot["snapshot"]] == [("meta", "cluster")]
    assert (snapshot["more"], "compacted" in snapshot) == (False, False)
    answer = await mesh.propose(register("n1"))
    frame = await take(frames)
    assert (frame["idx"], frame["token"]) == (answer["idx"], f"cluster-t.1.{answer['idx']}")
    assert changed(frame) == [("node", "n1")]
    assert frame["changes"][0][2]["uid"] == "u1"


async def test_a_token_resumes_without_gap_or_repetition(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    token = (await take(mesh.subscribe({"all": True})))["token"]
    answers = [await mesh.propose(register(f"n{n}", f"u{n}")) for n in range(20)]
    frames = mesh.subscribe({"all": True}, token)
    seen = [await take(frames) for _ in answers]
    assert [f["idx"] for f in seen] == [a["idx"] for a in answers]
    middle = mesh.subscribe({"all": True}, seen[9]["token"])
    assert (await take(middle))["idx"] == answers[10]["idx"]


async def test_a_foreign_token_restarts_with_a_compacted_snapshot(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    frame = await take(mesh.subscribe({"all": True}, "another.1.1"))
    assert frame["compacted"] is True
    assert [(entity, key) for entity, key, _ in frame["snapshot"]] == [("meta", "cluster")]


async def test_a_node_sees_its_own_rows_only(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    await mesh.propose(register("n1"))
    frames = mesh.subscribe({"node": "n1"})
    snapshot = await take(frames)
    assert [(entity, key) for entity, key, _ in snapshot["snapshot"]] == [("meta", "cluster"), ("node", "n1")]
    await mesh.propose(register("n2", "u2"))
    answer = await mesh.propose(register("n1", labels={"rack": "r"}))
    assert (await take(frames))["idx"] == answer["idx"]


async def test_filters_and_tokens_that_are_none_are_refused(mesh: MeshClient) -> None:
    for feed_filter, token in (
        ({}, None),
        ({"all": False}, None),
        ({"node": 5}, None),
        ({"all": True}, "x"),
        ({"all": True}, "a.b.c"),
    ):
        with pytest.raises(HeteroFlowError) as refused:
            await take(mesh.subscribe(feed_filter, token))
        assert refused.value.code == "invalid_subscription"


async def test_the_leader_renews_leases_of_nodes_it_knows(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    renewal = {"node": "n1", "uid": "u1", "sent_ns": 12345}
    assert (await mesh.renew(renewal))["reason"] in ("unknown_node", "no_quorum")
    await mesh.propose(register("n1"))

    async def granted() -> dict[str, Any] | None:
        answer = await mesh.renew(renewal)
        return answer if answer["granted"] else None

    grant = await eventually("the lease to be granted", granted)
    assert (grant["sent_ns"], grant["ttl_ms"]) == (12345, 9000)
    assert (await mesh.renew({**renewal, "uid": "other"}))["reason"] == "wrong_uid"


async def test_status_tells_role_indexes_and_hash(mesh: MeshClient) -> None:
    await mesh.propose(init(ROSTER))
    status = await mesh.status()
    assert (status["role"], status["spare"], status["alarm"], status["disk_full"]) == ("leader", 0, "", False)
    assert status["applied"] == status["commit"] == status["last"] >= 1
    assert len(status["state_hash"]) == 32
