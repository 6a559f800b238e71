"""Several groups in one request: each is judged as if it had been asked for alone."""

from typing import Any

import pytest

from schemas.api import HEADER_REQUEST_ID
from tests.security.people import People, people

NOWHERE = "tg-00000000000000000009"


async def batch(found: People, who: str, action: str, body: Any, **headers: str) -> tuple[int, Any]:
    url = f"/api/v1/task-groups/{action}"
    async with found.client.post(url, json=body, headers={**found.auth(who), **headers}) as response:
        return response.status, await response.json()


async def status(found: People, tenant: str) -> str | None:
    url = f"/api/v1/task-groups/{found.groups[tenant]}"
    async with found.client.get(url, headers=found.auth("operator.red")) as response:
        return (await response.json())["status"] if response.status == 200 else None


@pytest.mark.attack(29)
@pytest.mark.parametrize("order", [("red", "blue"), ("blue", "red")])
async def test_every_item_is_judged(tmp_path, attempts, order):
    async with people(tmp_path) as found:
        ids = [found.groups[tenant] for tenant in order]
        for action, reached in (("stop", "stopped"), ("delete", "deleted")):
            attempts["tried"] += 1
            answered, said = await batch(found, "member.red", action, {"group_ids": [*ids, NOWHERE, "../x"]})
            assert answered == 200
            outcomes = {item["group_id"]: item for item in said["outcomes"]}
            assert list(outcomes) == [*ids, NOWHERE, "../x"]
            assert outcomes[found.groups["red"]] == {
                "group_id": found.groups["red"],
                "status": reached,
                "problem": None,
            }
            foreign, absent = outcomes[found.groups["blue"]]["problem"], outcomes[NOWHERE]["problem"]
            assert foreign["status"] == absent["status"] == 404
            assert foreign["message"].replace(found.groups["blue"], NOWHERE) == absent["message"]
        assert await status(found, "blue") == "pending" and await status(found, "red") is None


@pytest.mark.attack(29)
async def test_who_may_only_look_changes_nothing(tmp_path, attempts):
    async with people(tmp_path) as found:
        for action in ("stop", "delete"):
            attempts["tried"] += 1
            assert (await batch(found, "viewer.red", action, {"group_ids": [found.groups["red"]]}))[0] == 403
        assert await status(found, "red") == "pending"


async def test_a_repeat_does_none_of_them_twice(tmp_path):
    async with people(tmp_path) as found:
        ids = [found.groups["red"], await found.submit("member.red", "another")]
        first = await batch(found, "member.red", "stop", {"group_ids": ids}, **{HEADER_REQUEST_ID: "evening"})
        again = await batch(found, "member.red", "stop", {"group_ids": ids}, **{HEADER_REQUEST_ID: "evening"})
        assert first == again and [item["status"] for item in first[1]["outcomes"]] == ["stopped", "stopped"]
        # The key of another action: each part says so for itself.
        _, said = await batch(found, "member.red", "delete", {"group_ids": ids}, **{HEADER_REQUEST_ID: "evening"})
        assert [item["problem"]["code"] for item in said["outcomes"]] == ["request_conflict", "request_conflict"]


async def test_what_is_no_batch(tmp_path):
    many = [f"tg-{number}" for number in range(101)]
    async with people(tmp_path) as found:
        for body in ({}, {"groups": ["a"]}, *({"group_ids": value} for value in ([], "tg-1", [1], ["a", "a"], many))):
            answered, said = await batch(found, "member.red", "stop", body)
            assert answered == 400 and said["field"] and said["hint"], (body, said)
