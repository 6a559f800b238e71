"""Every route of the table against everyone who may not: strangers, dead keys, wrong scopes, other tenants."""

import asyncio
import base64
import json
import time
from typing import Any

import aiohttp
import jwt
import pytest

from agentd import access_tokens
from agentd.http import stream_end
from agentd.http.callers import HEADER_FOR
from agentd.http.needs import Need, need_of
from schemas.commands import command
from schemas.limits import TOKEN_TTL_S
from schemas.rules.permissions import ROLES, SCOPES, Permission, granted
from tests.integration.served_api import AUTH, TOKEN, document
from tests.security.people import bearer, filled, people

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(),
}


@pytest.fixture
async def found(tmp_path):
    async with people(tmp_path) as made:
        yield made


async def strangers(found) -> dict[str, dict[str, str]]:
    """Headers of who is nobody, or nobody any more."""
    good = found.keys["admin.red"]
    await found.make_key("short", "admin", expires_in_s=1)
    await found.make_key("gone", "admin")
    leftover = await found.login("gone")
    await found.revoke("gone")
    token = await found.login("admin.red")
    _, rows = (await found.mesh.query([{"get": ["meta", "cluster"]}, {"scan": ["signer", ""]}]))["results"]
    ((kid, signer),) = rows
    now, sub = int(time.time()), found.id_of("admin.red")

    def forged(secret: Any = signer["secret"], algorithm: str | None = "HS256", kid: Any = kid, **claims: Any) -> str:
        return jwt.encode({"sub": sub, "exp": now + 600, **claims}, secret, algorithm, headers={"kid": kid})

    def unsigned(alg: str) -> str:
        parts = [{"alg": alg, "typ": "JWT", "kid": kid}, {"sub": sub, "exp": now + 600}]
        return ".".join([*(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts), ""])

    await asyncio.sleep(1.01)  # the end of `short`
    found.forget()
    no_end = jwt.encode({"sub": sub}, signer["secret"], "HS256", headers={"kid": kid})
    return {
        "nothing": {},
        "empty": {"Authorization": ""},
        "no scheme": {"Authorization": good},
        "no word": {"Authorization": "Bearer "},
        "another scheme": {"Authorization": f"Basic {good}"},
        "mesh token without a scheme": {"Authorization": TOKEN},
        "a word": bearer("wrong"),
        "a key cut short": bearer(good[:-1]),
        "a key of another secret": bearer(good[:-5] + ("AAAAA" if good[-5:] != "AAAAA" else "BBBBB")),
        "a key nobody made": bearer("hfk_" + "a" * 16 + "_" + "A" * 43),
        "the mesh token cut short": bearer(TOKEN[:-1]),
        "expired": found.auth("short"),
        "revoked": found.auth("gone"),
        "a token of a revoked key": bearer(leftover),
        "a token with another end": bearer(token[:-4] + "AAAA"),
        "a token out of date": bearer(forged(exp=now - 1)),
        "a token without an end": bearer(no_end),
        "a token signed by another": bearer(forged(secret=b"1" * 32)),
        "a token of an unknown signer": bearer(forged(kid="x")),
        "a token whose signer is no text": bearer(forged(kid="../../x")),
        "a token for nobody": bearer(forged(sub="k" * 16)),
        "an unsigned token": bearer(unsigned("none")),
        "an unsigned token of that name": bearer(unsigned("HS256")),
        "a huge token": bearer("a" * 3000 + ".b.c"),
        "odd bytes": bearer("\x80\xff.é.ü"),
        "in the address": {"X-Token": good},
    }


@pytest.mark.attack(23, 24)
async def test_no_route_answers_who_is_nobody(found, record_property):
    """Every path with every method, also those that it does not take, and as a WebSocket."""
    attempts = 0
    for who, headers in (await strangers(found)).items():
        for path in sorted({path for _, path, handler in found.routes() if need_of(handler).permission != "open"}):
            where = filled(path, found.groups["red"])
            if who == "in the address":
                where += f"?token={found.keys['admin.red']}&access_token={TOKEN}"
            for method, more in [*((method, {}) for method in METHODS), ("GET", UPGRADE)]:
                async with found.client.request(method, where, headers=headers | more) as response:
                    assert response.status == 401, (who, method, where, await response.text())
                    assert response.headers["WWW-Authenticate"] == "Bearer"
                    if method != "HEAD":
                        assert (await response.json())["code"] == "unauthorised"
                attempts += 1
    print(f"{attempts} attempts of nobody, all refused")
    record_property("attempts", attempts)
    assert attempts > 26 * 25 * 9


def lacks(caller_has: frozenset[Permission], need: Need | None) -> bool:
    return need is None or need.peer or need.permission not in caller_has


@pytest.mark.attack(24, 30)
async def test_no_role_and_no_scope_goes_beyond_itself(found, record_property):
    """Each route by each role and by a key of each single scope: 403 exactly where the need is not met."""
    holders = {role: (granted(role), found.auth(f"{role}.red")) for role in ROLES}
    for scope in SCOPES:
        await found.make_key(scope, "admin", scopes=[scope])
        holders[scope] = granted("admin", [scope]), found.auth(scope)
    attempts = refused = 0
    for method, path, handler in found.routes():
        need = need_of(handler)
        if need.permission is Permission.OPEN:
            continue
        for who, (has, headers) in holders.items():
            async with found.client.request(method, filled(path), headers=headers) as response:
                forbidden = response.status == 403
                assert response.status != 401
                assert forbidden == lacks(has, need), (who, method, path, await response.text())
                if forbidden and method != "HEAD":
                    value = await response.json()
                    assert value["code"] == "forbidden" and value["hint"], value
            attempts, refused = attempts + 1, refused + forbidden
    print(f"{attempts} attempts of roles and scopes, {refused} refused as they must be")
    record_property("attempts", attempts)
    assert refused > 100


@pytest.mark.attack(7, 26)
async def test_a_group_of_another_tenant_is_as_one_that_is_not_there(found, record_property):
    theirs = found.groups["blue"]
    nowhere = theirs[:-1] + ("0" if theirs[-1] != "0" else "1")
    attempts = 0

    async def told(method: str, path: str, who: str, group_id: str) -> tuple[int, str, set[str]]:
        headers = {**found.auth(who), "Content-Type": "application/json"}
        async with found.client.request(method, filled(path, group_id), headers=headers, data=b"") as response:
            text = (await response.text()).replace(group_id, "GROUP")
            return response.status, text, set(response.headers)

    for method, path, handler in found.routes():
        if need_of(handler).peer or not ("{group_id}" in path or "{task}" in path):
            continue
        for who in ("viewer.red", "member.red"):
            hidden, absent = await told(method, path, who, theirs), await told(method, path, who, nowhere)
            assert hidden == absent and hidden[0] in (403, 404), (method, path, hidden, absent)
            attempts += 2
    assert attempts > 30
    assert (await found.get(f"/api/v1/task-groups/{theirs}", "viewer.blue"))["status"] == "pending"
    print(f"{attempts} attempts on another tenant's group, none told from a group that is not there")
    record_property("attempts", attempts)


@pytest.mark.attack(26)
@pytest.mark.parametrize("who", ["viewer.red", "member.red"])
async def test_lists_hold_the_own_tenant_only(found, who):
    theirs = found.groups["blue"]
    listed = await found.get("/api/v1/task-groups", who)
    assert [group["group_id"] for group in listed["groups"]] == [found.groups["red"]]
    for query in ("name=job", "name=job-blue", "status=pending", "limit=1", "cursor=999999"):
        assert theirs not in json.dumps(await found.get(f"/api/v1/task-groups?{query}", who))
    queue = await found.get("/api/v1/queue", who)
    assert [entry["group_id"] for entry in queue["queue"]] == [found.groups["red"]] and queue["total"] == 1
    assert queue["recovery"]["groups"] == 1
    # A place in the whole line, because the whole line goes first.
    assert [entry["position"] for entry in (await found.get("/api/v1/queue", "viewer.blue"))["queue"]] == [2]
    everything = await found.get("/api/v1/task-groups", "operator.red")
    assert {group["tenant"] for group in everything["groups"]} == {"red", "blue"}


@pytest.mark.attack(27)
async def test_an_id_is_never_a_prefix(found):
    mine = found.groups["red"]
    for part in (mine[:-1], mine[:8], "tg-", mine + "0", mine + "/", mine.upper()):
        async with found.client.get(f"/api/v1/task-groups/{part}", headers=AUTH) as response:
            assert response.status == 404, part


@pytest.mark.attack(26, 30)
async def test_nobody_submits_into_another_tenant(found):
    await found.submit("member.red", "x", 403, tenant="blue")
    await found.submit("viewer.red", "x", 403)
    group = await found.submit("operator.red", "y", tenant="blue")
    shown = await found.get(f"/api/v1/task-groups/{group}", "viewer.blue")
    assert (shown["tenant"], shown["user"]) == ("blue", "operator.red")
    # Nor by submitting again what an operator's own tenant is not.
    async with found.client.post(f"/api/v1/task-groups/{group}/stop", headers=found.auth("operator.red")) as response:
        assert response.status == 200
    async with found.client.post(f"/api/v1/task-groups/{group}/resubmit", headers=found.auth("operator.red")) as again:
        assert (await found.get(f"/api/v1/task-groups/{(await again.json())['group_id']}", "viewer.blue"))["tenant"]


@pytest.mark.attack(26)
async def test_an_idempotency_key_is_each_ones_own(found):
    headers = {"Idempotency-Key": "the-same-1"}
    said = []
    for who in ("member.red", "member.blue", "member.red"):
        body = document("same", checkpoint_path=f"/data/{who}")
        async with found.client.post("/api/v1/task-groups", json=body, headers=headers | found.auth(who)) as response:
            said.append((response.status, (await response.json())["group_id"]))
    assert said[0][0] == said[1][0] == 201 and said[0][1] != said[1][1]
    assert said[2] == (200, said[0][1])


# -- the feed


async def frames_of(found, who: str, query: str = "", until: int = 1) -> list[dict[str, Any]]:
    frames = []
    async with found.client.ws_connect(f"/api/v1/watch{query}", headers=found.auth(who)) as socket:
        while len(frames) < until:
            frame = await socket.receive_json(timeout=10)
            if frame:
                frames.append(frame)
    return frames


@pytest.mark.attack(26)
@pytest.mark.parametrize("query", ["", "?all=true", "?rows=brief&all=true", "?since=memory.1.2"])
async def test_a_watch_shows_the_own_tenant_only(found, query):
    theirs, mine = found.groups["blue"], found.groups["red"]
    async with found.client.ws_connect(f"/api/v1/watch{query}", headers=found.auth("member.red")) as socket:
        (frame,) = [await socket.receive_json(timeout=10)]
        assert mine in json.dumps(frame) and theirs not in json.dumps(frame)
        assert frame.get("compacted", False) == ("since" in query)
        other = await found.submit("member.blue", "more-blue")
        async with found.client.post(f"/api/v1/task-groups/{theirs}/stop", headers=found.auth("member.blue")) as done:
            assert done.status == 200
        third = await found.submit("member.red", "more-red")
        seen = ""
        while third not in seen:
            seen += json.dumps(await socket.receive_json(timeout=10))
        assert other not in seen and theirs not in seen and "blue" not in seen
    assert theirs in json.dumps(await frames_of(found, "operator.red", "?all=true"))


@pytest.mark.attack(7, 26)
async def test_a_watch_of_a_hidden_group_is_as_one_of_no_group(found):
    theirs = found.groups["blue"]
    nowhere = theirs[:-1] + ("0" if theirs[-1] != "0" else "1")
    told = [await frames_of(found, "member.red", f"?group={group_id}") for group_id in (theirs, nowhere)]
    assert told[0] == told[1] and told[0][0]["snapshot"] == []
    assert (await frames_of(found, "member.blue", f"?group={theirs}"))[0]["snapshot"] != []


@pytest.mark.attack(26, 30, 34)
@pytest.mark.parametrize("role", ["member", "operator", "admin"])
async def test_a_scope_narrows_a_feed_too(found, role):
    """Whoever may only look at groups is shown no node, and no secret of a document, whatever his role."""
    await found.make_key("looks", role, scopes=["tasks:read"])
    body = document("hidden", hyper_params={"api_token": "canary-7f3a"})
    async with found.client.post("/api/v1/task-groups", json=body, headers=found.auth("member.red")) as response:
        assert response.status == 201
    fields = {"uid": "u", "api_addr": "n9.internal:1", "voter_addr": None, "gpus": [], "gpu_backend": "none"}
    rest = {"runtime": "process", "labels": {}, "version": "0", "cpus": 1, "memory_mb": 1}
    assert (await found.mesh.propose(command("RegisterNode", node_id="n9", **fields, **rest)))["ok"]
    for query in ("?all=true", "", "?since=memory.1.0"):
        text = json.dumps(await frames_of(found, "looks", query))
        assert "n9.internal" not in text and "canary-7f3a" not in text, query
        whole = json.dumps(await frames_of(found, "admin.red", query))
        assert "n9.internal" in whole or "since" in query
    assert "canary-7f3a" in json.dumps(await frames_of(found, "admin.red", "?all=true"))
    for path in ("/api/v1/nodes", "/api/v1/mesh", "/api/v1/gossip"):
        await found.get(path, "looks", 403)


@pytest.mark.attack(26)
async def test_nobody_watches_keys_or_the_audit(found):
    text = json.dumps(await frames_of(found, "admin.red", "?all=true"))
    assert "job-red" in text
    for secret in ("sha256", "api_key", "signer", "audit", found.id_of("admin.red")):
        assert secret not in text


@pytest.mark.attack(28)
@pytest.mark.parametrize("way", ["revoked", "expired", "token of a revoked key", "token that ran out"])
async def test_a_stream_ends_with_the_right_to_it(found, way, monkeypatch):
    monkeypatch.setattr(stream_end, "RECHECK_S", 0.2)
    await found.make_key("reader", "viewer", **({"expires_in_s": 2} if way == "expired" else {}))
    monkeypatch.setattr(access_tokens, "TOKEN_TTL_S", 2 if way == "token that ran out" else TOKEN_TTL_S)
    headers = bearer(await found.login("reader")) if way.startswith("token") else found.auth("reader")
    group = found.groups["red"]
    async with found.client.ws_connect("/api/v1/watch", headers=headers) as socket:
        assert "snapshot" in await socket.receive_json(timeout=10)
        if way in ("revoked", "token of a revoked key"):
            await found.revoke("reader")
        frame: dict[str, Any] = {}
        async with asyncio.timeout(10):
            while "problem" not in frame:
                frame = await socket.receive_json()
            assert frame["problem"]["code"] == "unauthorised" and frame["problem"]["status"] == 401
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    await found.submit("member.red", "goes-on")
    assert (await found.get(f"/api/v1/task-groups/{group}", "viewer.red"))["status"] == "pending"


# -- between agents


@pytest.mark.attack(31)
async def test_routes_between_agents_take_no_person(found):
    peers = [(method, path, need_of(handler)) for method, path, handler in found.routes() if need_of(handler).peer]
    assert len(peers) > 5
    for method, path, need in peers:
        where = filled(path, found.groups["red"])
        for who in ("admin.red", "operator.red", "viewer.red"):
            for more in ({}, {HEADER_FOR: found.id_of("admin.red")}):
                async with found.client.request(method, where, headers=found.auth(who) | more) as response:
                    assert response.status == 403, (method, where)
        # An agent that asks for a person gets no more than he may have.
        for key, status in (("k" * 16, 401), (found.id_of("viewer.red"), 403)):
            if need.permission is Permission.PEER or status == 401:
                headers = AUTH | {HEADER_FOR: key}
                async with found.client.request(method, where, headers=headers) as response:
                    assert response.status == status, (method, where, await response.text())


@pytest.mark.attack(25)
async def test_the_agent_that_has_the_files_judges_again(found):
    """The one that was asked first may have forgotten to, or have been talked into it."""
    theirs = found.groups["blue"]
    for path in (f"/mesh/v1/curves/{theirs}", f"/mesh/v1/logs/{theirs}/1/0", f"/mesh/v1/gpu-metrics/{theirs}.1.0"):
        headers = AUTH | {HEADER_FOR: found.id_of("member.red")}
        async with found.client.get(path, headers=headers) as response:
            assert response.status == 404, await response.text()
            assert (await response.json())["code"] == "no_such_group"
        await found.make_key("blind", "admin", tenant="blue", scopes=["keys:write"])
        async with found.client.get(path, headers=AUTH | {HEADER_FOR: found.id_of("blind")}) as response:
            assert response.status == 403, await response.text()


# -- Host and browsers


@pytest.mark.attack(33)
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "169.254.169.254", "localhost.evil.example"]
)
async def test_a_foreign_name_is_refused_before_the_key_is_looked_at(found, host):
    for path in ("/api/v1/task-groups", "/api/v1/watch", "/api/v1/whoami", "/healthz"):
        for headers in (found.auth("admin.red"), {}):
            async with found.client.get(path, headers={**headers, "Host": host}) as response:
                assert response.status == 421


@pytest.mark.attack(33)
async def test_a_browser_is_given_nothing(found):
    """No cookie is taken or set, no foreign origin allowed, no form read."""
    origin = {"Origin": "http://evil.example"}
    preflight = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    async with found.client.options("/api/v1/task-groups", headers=preflight) as response:
        assert response.status == 401
        assert not any(name.lower().startswith("access-control") for name in response.headers)
    cookie = {"Cookie": f"token={found.keys['admin.red']}; Authorization=Bearer {TOKEN}"}
    async with found.client.get("/api/v1/task-groups", headers=origin | cookie) as response:
        assert response.status == 401
    async with found.client.get("/api/v1/task-groups", headers=origin | found.auth("admin.red")) as response:
        assert response.status == 200 and "Set-Cookie" not in response.headers
        assert not any(name.lower().startswith("access-control") for name in response.headers)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for path in ("/api/v1/task-groups", "/api/v1/keys"):
        async with found.client.post(path, data=b"a=b", headers=form | found.auth("admin.red")) as response:
            assert response.status == 415
