"""Gossip between real agents: what one sees of another that is killed, stops in order, or stands still."""

import json
import signal

import pytest

from tests.integration.mesh_fixture import RunningMesh
from tests.waiting import eventually

pytestmark = pytest.mark.slow
WITHIN_S = 60.0


async def nodes(node):
    answer = await node.call("GET", "/nodes?consistency=stale")
    assert answer.status == 200, answer
    return answer.value


async def sees(observer, name, *states, **facts):
    """What `observer` believes of `name`, once that is one of these states."""
    seen = []

    async def reached():
        answer = await nodes(observer)
        gossip = next((node["gossip"] for node in answer["nodes"] if node["node_id"] == name), None)
        seen.append(gossip)
        if gossip is None or gossip["state"] not in states:
            return None
        return gossip if all(gossip[key] > value for key, value in facts.items()) else None

    return await eventually(lambda: f"{observer.name} to see {name} {states}; last {seen[-1:]}", reached, WITHIN_S)


async def test_what_others_see_of_an_agent_that_is_killed_stands_still_or_stops(tmp_path):
    async with RunningMesh(tmp_path, n=3, guard_flags=("--restart", "never")) as mesh:
        first, second, third = mesh.nodes
        for observer in mesh.nodes:
            for other in mesh.nodes:
                assert (await sees(observer, other.name, "alive"))["addr"] == other.api

        async def agree():
            return (await nodes(first))["differences"] == []

        await eventually("both views to agree", agree, WITHIN_S)

        # Stands still: accused, and cleared by its own word.
        incarnation = (await sees(first, third.name, "alive"))["incarnation"]
        third.freeze_agent()
        await sees(first, third.name, "suspect", "dead")
        third.thaw_agent()
        assert (await sees(first, third.name, "alive", incarnation=incarnation))["version"]
        await sees(second, third.name, "alive", incarnation=incarnation)

        # Stops in order: left, at once and for all, with the word of what that means.
        third.signal_agent(signal.SIGTERM)
        await sees(first, third.name, "left")
        await sees(second, third.name, "left")

        async def told():
            differences = (await nodes(first))["differences"]
            return next((each for each in differences if each["node_id"] == third.name), None)

        difference = await eventually("the difference to be named", told, WITHIN_S)
        assert difference["kind"] == "state" and "said its agent" in difference["text"]
        third.guard.wait(timeout=30)
        boot = json.loads((third.data_dir / "gossip.json").read_text())["boot"]

        # And is back in a later life.
        third.start()
        await sees(first, third.name, "alive", incarnation=incarnation)
        assert json.loads((third.data_dir / "gossip.json").read_text())["boot"] > boot

        # Killed.
        await sees(second, first.name, "alive")
        third.kill_agent()
        assert (await sees(first, third.name, "dead"))["since_s"] >= 0
        await sees(second, third.name, "dead")
        facts = (await first.call("GET", "/mesh")).value["agent"]["gossip"]
        assert facts["members"]["dead"] == 1 and facts["members"]["alive"] == 2 and facts["conflict"] is None
