"""Task groups over HTTP: once per key, honest about what the state refuses, and never half created."""

import asyncio

import pytest

from mesh.memory import MemoryMesh
from schemas.errors import DiskFull, NoLeader, OutcomeUnknown
from schemas.ids import make_request_id
from tests.integration.served_api import AUTH, document, served

GROUPS = "/api/v1/task-groups"


async def submit(client, body, key=None):
    async with client.post(GROUPS, json=body, headers=AUTH | ({"Idempotency-Key": key} if key else {})) as response:
        return response.status, await response.json()


async def test_one_group_however_often_it_is_sent(tmp_path):
    mesh = MemoryMesh()
    async with served(tmp_path / "a", mesh) as first, served(tmp_path / "b", mesh) as second:
        status, made = await submit(first, document(), "k-01")
        assert status == 201 and made["status"] == "pending" and made["created_at"].endswith("Z")
        for client in (first, second, second):
            mesh.elect("n2")
            status, again = await submit(client, document(), "k-01")
            assert status == 200 and again == made
        async with second.get(GROUPS, headers=AUTH) as response:
            assert [group["group_id"] for group in (await response.json())["groups"]] == [made["group_id"]]


async def test_the_spelling_of_a_body_is_not_its_content(tmp_path):
    async with served(tmp_path) as client:
        _, made = await submit(client, document(), "k-01")
        body = document()
        status, again = await submit(client, dict(reversed(body.items())), "k-01")
        assert (status, again) == (200, made)


async def test_one_key_for_two_bodies(tmp_path):
    async with served(tmp_path) as client:
        await submit(client, document(), "k-01")
        status, value = await submit(client, document("ft-b"), "k-01")
        assert status == 409 and value["code"] == "request_conflict"


async def test_keys_that_are_none(tmp_path):
    async with served(tmp_path) as client:
        for key in ("a b", "../x", "k" * 100):
            status, value = await submit(client, document(), key)
            assert status == 400 and value["field"] == "Idempotency-Key"
        status, value = await submit(client, document(), make_request_id(1_000_000, b"12345678"))
        assert status == 410 and value["code"] == "request_expired"


async def test_without_a_key_each_request_is_a_group(tmp_path):
    async with served(tmp_path) as client:
        answers = await asyncio.gather(*(submit(client, document(f"g-{i}")) for i in range(20)))
        assert len({value["group_id"] for _, value in answers}) == 20


async def test_every_finding_and_nothing_created(tmp_path):
    body = document()
    body["training"]["n_nodes"] = -1
    body["task"] |= {"gpu_required": "two", "comand": "x"}
    body["extra"] = 1
    async with served(tmp_path) as client:
        status, value = await submit(client, body)
        assert status == 400 and value["code"] == "invalid_document"
        assert {"training.n_nodes", "task.gpu_required", "task.comand", "extra"} <= {
            f["path"] for f in value["findings"]
        }
        async with client.get(GROUPS, headers=AUTH) as response:
            assert (await response.json())["groups"] == []


async def test_a_checkpoint_path_in_use(tmp_path):
    async with served(tmp_path) as client:
        _, made = await submit(client, document())
        status, value = await submit(client, document("ft-b", checkpoint_path="/data/ckpt/ft-a/"))
        assert status == 409 and value["code"] == "checkpoint_path_in_use" and made["group_id"] in value["message"]


async def test_show_list_stop_resubmit_delete(tmp_path):
    async with served(tmp_path) as client:
        _, made = await submit(client, document())
        where = f"{GROUPS}/{made['group_id']}"
        async with client.get(where, headers=AUTH) as response:
            shown = await response.json()
            assert response.headers["X-HeteroFlow-Node"] == "n1" and int(response.headers["X-HeteroFlow-Index"]) >= 1
        assert shown["config"]["task"]["command"] == "python train.py" and shown["tasks"] == []
        async with client.post(f"{where}/resubmit", headers=AUTH) as response:
            assert response.status == 409 and (await response.json())["code"] == "group_active"
        async with client.delete(where, headers=AUTH) as response:
            assert response.status == 409
        for _ in range(2):
            async with client.post(f"{where}/stop", headers=AUTH) as response:
                assert response.status == 200 and (await response.json())["status"] == "stopped"
        async with client.post(f"{where}/resubmit", headers=AUTH) as response:
            assert response.status == 201
            second = await response.json()
        async with client.get(f"{GROUPS}/{second['group_id']}", headers=AUTH) as response:
            again = await response.json()
        assert again["config"] == shown["config"] and again["resubmit_of"] == made["group_id"]
        async with client.delete(where, headers=AUTH) as response:
            assert response.status == 200
        async with client.get(where, headers=AUTH) as response:
            assert response.status == 404
        async with client.get(f"{GROUPS}/{second['group_id']}/fault-events", headers=AUTH) as response:
            assert [event["kind"] for event in (await response.json())["events"]] == ["submitted"]


async def test_pages_and_filters(tmp_path):
    async with served(tmp_path) as client:
        for number in range(7):
            await submit(client, document(f"run-{number}"))
        names, cursor = [], ""
        while True:
            async with client.get(f"{GROUPS}?limit=3{cursor}", headers=AUTH) as response:
                page = await response.json()
            names += [group["name"] for group in page["groups"]]
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        assert names == [f"run-{number}" for number in reversed(range(7))]
        async with client.get(f"{GROUPS}?name=RUN-3&status=pending,running", headers=AUTH) as response:
            assert [group["name"] for group in (await response.json())["groups"]] == ["run-3"]
        async with client.get("/api/v1/queue", headers=AUTH) as response:
            queue = (await response.json())["queue"]
        assert [(entry["position"], entry["name"]) for entry in queue] == [(n + 1, f"run-{n}") for n in range(7)]


async def test_hyper_parameters_come_back_as_they_were_written(tmp_path):
    text = '{"lr": 1e-4, "warmup": 1.0e-4, "steps": 5e6, "seed": "0755", "empty": ""}'
    body = document().__repr__().replace("'", '"').replace('"framework"', f'"hyper_params": {text}, "framework"')
    async with served(tmp_path) as client:
        headers = AUTH | {"Content-Type": "application/json"}
        async with client.post(GROUPS, data=body.encode(), headers=headers) as response:
            made = await response.json()
            assert response.status == 201, made
        async with client.get(f"{GROUPS}/{made['group_id']}", headers=AUTH) as response:
            params = (await response.json())["config"]["training"]["hyper_params"]
    assert params == {"lr": "1e-4", "warmup": "1.0e-4", "steps": "5e6", "seed": "0755", "empty": ""}


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (NoLeader("no_leader", "no leader", "wait"), 503, True),
        (OutcomeUnknown("timeout_unknown", "lost", "repeat"), 503, True),
        (DiskFull("disk_full", "full", "free"), 507, False),
    ],
)
async def test_trouble_of_the_mesh(tmp_path, error, status, retry):
    class Troubled(MemoryMesh):
        async def propose(self, *_, **__):
            raise error

    async with (
        served(tmp_path, Troubled()) as client,
        client.post(GROUPS, json=document(), headers=AUTH) as response,
    ):
        assert response.status == status and ("Retry-After" in response.headers) == retry
        assert (await response.json())["hint"]


async def test_a_busy_feed_is_told_as_often_as_its_watcher_wants(tmp_path):
    """Each row's last state, one frame for each such time, and nothing lost where the watch goes on elsewhere."""
    mesh = MemoryMesh()
    async with served(tmp_path / "a", mesh) as first:
        names = [f"ft-{at}" for at in range(40)]
        async with first.ws_connect("/api/v1/watch?rows=brief&every_ms=200", headers=AUTH) as socket:
            assert (await socket.receive_json(timeout=5))["snapshot"] == []
            seen: dict[str, str] = {}
            frames, began = 0, asyncio.get_running_loop().time()
            submitting = asyncio.gather(*(submit(first, document(name)) for name in names))
            while set(seen) != set(names):
                frame = await socket.receive_json(timeout=20)
                frames += bool(frame.get("changes"))
                seen |= {row["name"]: row["status"] for entity, _, row in frame.get("changes", ()) if entity == "group"}
            assert frames <= (asyncio.get_running_loop().time() - began) / 0.2 + 1
            made = [group["group_id"] for _, group in await submitting]
        async with first.ws_connect(f"/api/v1/watch?every_ms=200&since={frame['token']}", headers=AUTH) as socket:
            async with first.post(f"{GROUPS}/{made[0]}/stop", headers=AUTH) as response:
                assert response.status == 200
            assert ["active", made[0], None] in (await socket.receive_json(timeout=5))["changes"]


async def test_watch_resumes_at_another_node(tmp_path):
    mesh = MemoryMesh()
    async with served(tmp_path / "a", mesh) as first, served(tmp_path / "b", mesh) as second:
        async with first.ws_connect("/api/v1/watch", headers=AUTH) as socket:
            snapshot = await socket.receive_json(timeout=5)
            assert snapshot["snapshot"] == []
            _, made = await submit(first, document())
            frame = await socket.receive_json(timeout=5)
            assert ["active", made["group_id"], {"status": "pending"}] in frame["changes"]
        async with second.post(f"{GROUPS}/{made['group_id']}/stop", headers=AUTH) as response:
            assert response.status == 200
        async with second.ws_connect(f"/api/v1/watch?since={frame['token']}", headers=AUTH) as socket:
            after = await socket.receive_json(timeout=5)
            assert after["idx"] > frame["idx"]
            assert ["active", made["group_id"], None] in after["changes"]
        async with second.ws_connect(f"/api/v1/watch?group={made['group_id']}", headers=AUTH) as socket:
            whole = await socket.receive_json(timeout=5)
            assert {entity for entity, _, _ in whole["snapshot"]} == {"group", "event"}
        async with second.ws_connect("/api/v1/watch?since=nonsense", headers=AUTH) as socket:
            assert (await socket.receive_json(timeout=5))["problem"]["code"] == "invalid_subscription"
