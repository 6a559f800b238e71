"""Each deliberate gap in who may do what is found by the scenario that names it; without it the scenario holds."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

import pytest

from agentd.http import stream_end
from agentd.http.callers import HEADER_FOR
from tests.integration.served_api import AUTH
from tests.mutants.people_mutants import MUTANTS
from tests.security.people import People, bearer, people
from tests.unit.state.test_api_keys import ROOT, entries, put_key
from tests.unit.state.world import World


async def a_revoked_key_changes_nothing(found: People) -> bool:
    world = World()
    group_id = world.submit(1, 1)
    caller = put_key(world, "k1", "operator")
    world.do("RevokeKey", caller=ROOT, key_id="k1")
    return not world.do("StopGroup", group_id=group_id, by="k1", caller=caller).ok


async def another_tenant_changes_nothing(found: People) -> bool:
    world = World()
    group_id = world.submit(1, 1)
    return not world.do("StopGroup", group_id=group_id, by="k1", caller=put_key(world, "k1", "member", "red")).ok


async def a_refusal_is_in_the_audit(found: People) -> bool:
    world = World()
    world.do("RevokeKey", caller=put_key(world, "k1", "viewer"), key_id="k1")
    return entries(world)[-1]["code"] == "forbidden"


async def an_id_of_another_tenant_shows_nothing(found: People) -> bool:
    path = f"/api/v1/task-groups/{found.groups['blue']}"
    async with found.client.get(path, headers=found.auth("member.red")) as response:
        return response.status == 404


async def the_host_of_the_files_judges_again(found: People) -> bool:
    headers = AUTH | {HEADER_FOR: found.id_of("member.red")}
    async with found.client.get(f"/mesh/v1/logs/{found.groups['blue']}/1/0", headers=headers) as response:
        return response.status == 404


async def a_watch_shows_the_own_tenant_only(found: People) -> bool:
    async with found.client.ws_connect("/api/v1/watch?all=true", headers=found.auth("viewer.red")) as socket:
        return found.groups["blue"] not in json.dumps(await socket.receive_json(timeout=10))


async def a_watch_ends_with_its_key(found: People) -> bool:
    await found.make_key("reader", "viewer")
    async with found.client.ws_connect("/api/v1/watch", headers=found.auth("reader")) as socket:
        await socket.receive_json(timeout=10)
        await found.revoke("reader")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                while "problem" not in await socket.receive_json():
                    pass
                return True
    return False


async def a_token_ends_with_its_key(found: People) -> bool:
    await found.make_key("reader", "viewer")
    token = await found.login("reader")
    await found.revoke("reader")
    async with found.client.get("/api/v1/whoami", headers=bearer(token)) as response:
        return response.status == 401


async def an_admin_is_no_agent(found: People) -> bool:
    async with found.client.get("/mesh/v1/telemetry", headers=found.auth("admin.red")) as response:
        return response.status == 403


SCENARIOS: dict[str, Callable[[People], Awaitable[bool]]] = {
    "only-the-entry-judges-the-key": a_revoked_key_changes_nothing,
    "only-the-entry-judges-the-tenant": another_tenant_changes_nothing,
    "refusals-leave-no-trace": a_refusal_is_in_the_audit,
    "other-tenants-are-only-left-out-of-lists": an_id_of_another_tenant_shows_nothing,
    "files-are-given-to-any-agent": the_host_of_the_files_judges_again,
    "the-feed-is-everyones": a_watch_shows_the_own_tenant_only,
    "a-stream-is-judged-once": a_watch_ends_with_its_key,
    "a-token-outlives-its-key": a_token_ends_with_its_key,
    "a-person-may-be-a-peer": an_admin_is_no_agent,
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
@pytest.mark.parametrize("mutated", [False, True])
async def test_mutant_is_killed(name, mutated, tmp_path, monkeypatch):
    monkeypatch.setattr(stream_end, "RECHECK_S", 0.1)
    async with people(tmp_path) as found:
        with MUTANTS[name]() if mutated else contextlib.nullcontext():
            assert await SCENARIOS[name](found) is not mutated
