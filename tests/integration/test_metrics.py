"""/metrics of a real agent: readable, complete, bounded, and only for who may look."""

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.integration.served_api import AUTH, served
from tests.waiting import eventually

pytestmark = pytest.mark.slow
PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
SEEN_LATER = {"heteroflow_gossip_dropped_total"}  # nothing was dropped


async def read(address: str, token: str) -> tuple[str, dict[str, dict[tuple[tuple[str, str], ...], float]]]:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics", headers=headers) as said:
        assert said.status == 200 and said.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await said.text()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type != "unknown"
        # Prometheus' own rules: base units, and _total for counters and nothing else.
        assert re.fullmatch(r"(heteroflow|process)_[a-z0-9_]+", family.name), family.name
        assert not family.name.endswith(("_ms", "_mb", "_percent", "_total", "_count")), family.name
        assert family.type != "counter" or all(s.name == f"{family.name}_total" for s in family.samples), family.name
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in found.setdefault(sample.name, {}), "no series twice"
            found[sample.name][key] = sample.value
    return text, found


def documented() -> set[str]:
    return set(re.findall(r"^\| `([a-z0-9_]+)` \|", PAGE.read_text(), re.M))


async def test_a_real_agent_says_what_its_page_says(tmp_path):
    async with RunningMesh(tmp_path, n=1) as mesh:
        address, token = mesh.nodes[0].api, mesh.token
        running = await mesh.submit(shell_group("zebra-run", tmp_path, "sleep 60", n_nodes=1))
        waiting = await mesh.submit(shell_group("waits", tmp_path, "true", n_nodes=2))
        await mesh.status(running, "running")

        async def queued():
            reason = (await mesh.group(waiting))["pending_reason"]
            return reason and reason["code"]

        code = await eventually("a reason", queued)

        async def whole():
            text, found = await read(address, token)
            ready = found.get("heteroflow_queue_groups", {}) == {(("reason", code),): 1.0}
            return (text, found) if ready and "heteroflow_lease_age_seconds" in found else None

        text, found = await eventually("the queue in the metrics", whole)
        assert found["heteroflow_groups"][(("status", "running"),)] == 1
        assert found["heteroflow_groups"][(("status", "pending"),)] == 1
        assert found["heteroflow_cards"] == {
            (("state", "free"),): 1, (("state", "held"),): 1, (("state", "releasing"),): 0
        }  # fmt: skip
        assert found["heteroflow_cards_capacity"][()] == 2 and found["heteroflow_queue_depth"][()] == 1
        assert found["heteroflow_nodes"][(("state", "ready"),)] == 1
        assert found["heteroflow_raft_leading"][()] == 1 and found["heteroflow_raft_quorum_margin"][()] == 0
        assert found["heteroflow_raft_applied_index"][()] >= 3
        assert 0 < found["heteroflow_lease_age_seconds"][()] < 60
        assert 0 < found["heteroflow_lease_left_seconds"][()] < 60
        assert found["heteroflow_scheduler_pass_seconds_count"][()] >= 1
        assert 10 << 20 < found["process_resident_memory_bytes"][()] < 1 << 30

        names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}
        assert names <= documented(), names - documented()
        assert documented() - names <= SEEN_LATER, documented() - names
        for secret in (token, running, waiting, "zebra-run", str(tmp_path)):
            assert secret not in text

        # Whatever is asked for, the list grows by what the agent has and not by what it is asked.
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            before = len(found["heteroflow_http_requests_total"])
            for at in range(30):
                async with session.request(f"M{at}", f"http://{address}/api/v1/none/{at}"):
                    pass
                async with session.get(f"http://{address}/api/v1/task-groups/tg-none-{at}"):
                    pass
        _, after = await read(address, token)
        assert len(after["heteroflow_http_requests_total"]) <= before + 4


async def test_two_agents_count_nothing_twice(tmp_path):
    async with RunningMesh(tmp_path, n=3) as mesh:
        leader = await mesh.leader()

        async def settled():
            pages = [(await read(node.api, mesh.token))[1] for node in mesh.nodes]
            # An agent that was there before its voter is with another's for its first seconds.
            with_own = all("heteroflow_raft_leading" in page for page in pages)
            return pages if with_own and any("heteroflow_nodes" in page for page in pages) else None

        pages = await eventually("a leader's page", settled)
        for name in ("heteroflow_groups", "heteroflow_cards_capacity", "heteroflow_queue_depth"):
            assert [name in page for page in pages] == [node.name == leader.name for node in mesh.nodes], name
        assert sum(page["heteroflow_raft_leading"][()] for page in pages) == 1
        assert all(page["heteroflow_raft_voters"][()] == 3 for page in pages)


async def test_it_is_for_who_may_look(tmp_path):
    async with served(tmp_path) as client:
        async with client.get("/metrics") as response:
            assert response.status == 401
        async with client.get("/metrics", headers=AUTH) as response:
            assert response.status == 200
            list(text_string_to_metric_families(await response.text()))


async def test_a_mesh_that_does_not_answer_is_said_and_not_zero(tmp_path):
    class Silent:
        async def status(self):
            await asyncio.Event().wait()

    async with served(tmp_path, Silent()) as client, client.get("/metrics", headers=AUTH) as response:
        assert response.status == 200
        text = await response.text()
        assert "heteroflow_mesh_readable 0" in text and "heteroflow_groups" not in text
