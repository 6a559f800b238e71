"""Nothing is answered without the token, nothing under a foreign Host, and every error is a problem object."""

import io
import json

import pytest

from tests.integration.served_api import AUTH, TOKEN, document, served

PROBLEM = {"code", "message", "hint", "field", "findings", "status"}


async def problem(response, status):
    assert response.status == status, await response.text()
    value = json.loads(await response.text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(value) == PROBLEM and value["status"] == status and value["message"]
    return value


@pytest.mark.attack(23)
async def test_every_route_needs_the_token(tmp_path):
    async with served(tmp_path) as client:
        routes = {(route.method, route.resource.canonical) for route in client.app.router.routes()}
        assert len(routes) > 12
        for method, path in sorted(routes):
            where = path.replace("{group_id}", "tg-x").replace("{attempt}", "1").replace("{rank}", "0")
            if path == "/healthz":
                continue
            for headers in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": TOKEN},
                {"Authorization": "Bearer "},
            ):
                async with client.request(method, where, headers=headers) as response:
                    assert response.status == 401, (method, where, headers)
                    if method != "HEAD":
                        assert (await problem(response, 401))["code"] == "unauthorised"
                        assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.attack(7, 24)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_routes_that_are_not_there_tell_strangers_nothing(tmp_path, method):
    async with served(tmp_path) as client:
        for path in ("/", "/api/v1/nope", "/api/v1/task-groups/tg-x/nope", "/mesh/v1/nope"):
            await problem(await client.request(method, path), 401)


async def test_health_is_open_and_says_little(tmp_path):
    async with served(tmp_path) as client, client.get("/healthz") as response:
        assert response.status == 200 and await response.json() == {"status": "ok", "reasons": []}


@pytest.mark.attack(33)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:7460", "10.0.0.7", "127.0.0.1.evil.example", ""])
async def test_foreign_host_header(tmp_path, host):
    async with served(tmp_path) as client:
        await problem(await client.get("/api/v1/nodes", headers=AUTH | {"Host": host}), 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7460", "[::1]:7460", "LOCALHOST:1"])
async def test_own_host_header(tmp_path, host):
    async with served(tmp_path) as client, client.get("/api/v1/nodes", headers=AUTH | {"Host": host}) as response:
        assert response.status == 200


async def test_unknown_route_and_method_with_the_token(tmp_path):
    async with served(tmp_path) as client:
        assert (await problem(await client.get("/api/v1/nope", headers=AUTH), 404))["code"] == "not_found"
        response = await client.put("/api/v1/task-groups", headers=AUTH)
        assert (await problem(response, 405))["code"] == "method_not_allowed"
        assert response.headers["Allow"]


BODIES = [
    ("not a number", '{"training": {"hyper_params": {"x": NaN}}}', 400),
    ("infinity", '{"training": {"checkpoint_interval": Infinity}}', 400),
    ("a number no float holds", '{"training": {"checkpoint_interval": 1e999}}', 400),
    ("minus zero", '{"training": {"n_nodes": -0}}', 400),
    ("beyond 53 bits", '{"training": {"n_nodes": 9007199254740993}}', 400),
    ("half a surrogate pair", '{"name": "\\ud800"}', 400),
    ("deep", "[" * 10_000, 400),
    ("deep and closed", "[" * 10_000 + "]" * 10_000, 400),
    ("trailing comma", '{"name": "a",}', 400),
    ("byte order mark", "\ufeff{}", 400),
    ("null", "null", 400),
    ("a list", "[]", 400),
    ("empty", "", 400),
    ("doubled key", '{"name": "a", "name": "b"}', 400),
    ("twenty megabytes", '{"name": "' + "a" * 20_000_000 + '"}', 413),
]


@pytest.mark.attack(39, 40)
@pytest.mark.parametrize(("body", "status"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
async def test_bodies_that_are_no_document(tmp_path, body, status):
    headers = AUTH | {"Content-Type": "application/json"}
    async with served(tmp_path) as client:
        response = await client.post("/api/v1/task-groups", data=io.BytesIO(body.encode()), headers=headers)
        await problem(response, status)
        async with client.get("/api/v1/task-groups", headers=AUTH) as listed:
            assert (await listed.json())["groups"] == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", None]
)
async def test_bodies_of_another_type(tmp_path, kind):
    async with served(tmp_path) as client:
        headers = AUTH | ({"Content-Type": kind} if kind else {})
        await problem(
            await client.post("/api/v1/task-groups", data=b"{}", headers=headers, skip_auto_headers=["Content-Type"]),
            415,
        )


@pytest.mark.attack(34)
async def test_an_unexpected_failure_gives_an_id_and_no_traceback(tmp_path, caplog):
    class Broken:
        async def query(self, *_, **__):
            raise RuntimeError(f"secret {TOKEN}")

    async with served(tmp_path, Broken()) as client:
        value = await problem(await client.get("/api/v1/nodes", headers=AUTH), 500)
    assert "secret" not in json.dumps(value) and "Traceback" not in json.dumps(value)
    record = next(r for r in caplog.records if getattr(r, "error_id", None))
    assert record.error_id in value["message"] and record.exc_info is not None


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=x", "limit=٣", "limit=" + "9" * 400, "cursor=-1", "status=nope", "consistency=maybe"),
        *("statuss=running", "limit=1&limit=2", "rank"),
    ],
)
async def test_parameters_that_are_none(tmp_path, query):
    async with served(tmp_path) as client:
        value = await problem(await client.get(f"/api/v1/task-groups?{query}", headers=AUTH), 400)
        assert value["field"] in query


@pytest.mark.attack(1)
@pytest.mark.parametrize("group", ["tg-x", "..", "%2e%2e%2fetc", "a%00b", "a" * 300, "%ff"])
@pytest.mark.parametrize("rest", ["", "/fault-events", "/logs"])
async def test_groups_that_are_not_there(tmp_path, group, rest):
    async with served(tmp_path) as client:
        await problem(await client.get(f"/api/v1/task-groups/{group}{rest}", headers=AUTH), 404)


async def test_answers_as_msgpack(tmp_path):
    import msgpack

    async with served(tmp_path) as client:
        packed = AUTH | {"Accept": "application/msgpack", "Content-Type": "application/msgpack"}
        body = msgpack.packb(document())
        async with client.post("/api/v1/task-groups", data=body, headers=packed) as response:
            assert response.status == 201 and response.content_type == "application/msgpack"
            assert msgpack.unpackb(await response.read())["status"] == "pending"
        for broken in (b"", b"\xc1", body + b"\x00", msgpack.packb([1]), b"\x91" * 5000):
            async with client.post("/api/v1/task-groups", data=broken, headers=packed) as response:
                assert response.status == 400, broken[:10]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/api/v1/task-group", "did you mean /api/v1/task-groups?"),
        ("/api/v1/task-groups/tg-1/stopp", "did you mean /api/v1/task-groups/{group_id}/stop?"),
        ("/api/v2/nodes", "did you mean /api/v1/nodes?"),
        ("/", "GET /api/v1/openapi.json lists all"),
    ],
)
async def test_a_route_that_there_is_not_is_answered_with_one_that_is(tmp_path, path, near):
    async with served(tmp_path) as client, client.get(path, headers=AUTH) as response:
        assert (await problem(response, 404))["hint"].startswith(near)
