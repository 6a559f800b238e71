"""Real launchers whose ranks do not find each other: named by what is seen from outside, and nothing is stopped."""

from typing import Any

import pytest

from tests.docker.engine import torch_environment
from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = [pytest.mark.need("torch"), pytest.mark.slow, pytest.mark.timeout(600)]
WAIT_S = 200.0
TRAIN = """
import os, sys, time
import torch.distributed as dist
if os.environ["GROUP_RANK"] == sys.argv[1]:
    time.sleep(600)
dist.init_process_group("gloo")
print("joined", flush=True)
time.sleep(600)
"""
# What no guard sees: the script forgets what the platform said, and every node is a world of its own.
SPLIT = "unset ${!PET_@} MASTER_ADDR MASTER_PORT\nexec torchrun --standalone --nproc_per_node=1 TRAIN none\n"


@pytest.fixture
async def mesh(tmp_path, request):
    flags = ("--telemetry-every", "0.3", "--rendezvous-after", str(request.param))
    running = RunningMesh(tmp_path, n=2, voters=1, gpus="simulated:3xH100", guard_flags=flags)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "split.sh").write_text(SPLIT.replace("TRAIN", str(tmp_path / "train.py")))
    async with running:
        yield running


def group(mesh: RunningMesh, name: str, command: str) -> dict[str, Any]:
    body = shell_group(name, mesh.directory, f"PATH={torch_environment()}/bin:$PATH; {command}")
    body["task"]["env"] = {"OMP_NUM_THREADS": "1"}
    return body


async def seen(mesh: RunningMesh, group_id: str, *states: str) -> dict[str, Any]:
    """What stands in the record of the group, once it is one of these."""

    async def told() -> dict[str, Any] | None:
        found: dict[str, Any] | None = (await mesh.group(group_id))["rendezvous"]
        return found if found is not None and found["state"] in states else None

    return await eventually(lambda: f"{group_id} to be {states}", told, WAIT_S, every_s=0.3)


async def alerts(mesh: RunningMesh, state: str = "raised") -> dict[str, dict[str, Any]]:
    answer = await mesh.nodes[1].call("GET", f"/alerts?state={state}")
    return {alert["group_id"]: alert for alert in answer.value["alerts"] if alert["rule"] == "rendezvous"}


async def events(mesh: RunningMesh, group_id: str) -> list[dict[str, Any]]:
    found = (await mesh.nodes[0].call("GET", f"/task-groups/{group_id}/fault-events")).value["events"]
    return [event for event in found if event["kind"].startswith("rendezvous_")]


@pytest.mark.parametrize("mesh", [4.0], indirect=True)
async def test_what_does_not_become_one_world_is_named(mesh):
    train = f"torchrun --nproc_per_node=1 {mesh.directory}/train.py"
    late = await mesh.submit(group(mesh, "late", f"{train} 1"))
    absent = await mesh.submit(group(mesh, "absent", f'[ "$NODE_RANK" = 0 ] || sleep 600; {train} none'))
    split = await mesh.submit(group(mesh, "split", f"bash {mesh.directory}/split.sh"))

    found = await seen(mesh, absent, "missing")
    host = (await mesh.group(absent))["nodes"][1]
    assert f"missing: rank 1 ({host}) never connected to 127." in found["text"], found
    found = await seen(mesh, split, "split")
    assert "were started as a world of 1, and the group has 2 nodes" in found["text"], found

    # Its launchers have met, and its process sleeps before it joins.
    async def sleeper_is_named() -> bool:
        text = (await seen(mesh, late, "missing"))["text"]
        return "missing: RANK 1 on rank 1" in text

    await eventually("the sleeping rank to be named", sleeper_is_named, WAIT_S, every_s=0.3)

    # The alert comes with the round after the record.
    async def all_alerted() -> dict[str, dict[str, Any]] | None:
        risen = await alerts(mesh)
        return risen if set(risen) == {late, absent, split} else None

    risen = await eventually("an alert of each", all_alerted, WAIT_S, every_s=0.3)
    assert {risen[split]["level"], risen[absent]["level"]} == {"critical", "warning"}
    for group_id in risen:
        assert (await mesh.group(group_id))["status"] == "running", "an observation stops nothing"
        assert (await events(mesh, group_id))[-1]["text"].endswith("after all ranks were running.")


@pytest.mark.parametrize("mesh", [240.0], indirect=True)
async def test_one_world_is_told_once_and_raises_nothing(mesh):
    train = f"torchrun --nproc_per_node=1 {mesh.directory}/train.py none"
    group_id = await mesh.submit(group(mesh, "healthy", train))
    found = await seen(mesh, group_id, "formed", "missing", "silent", "split")
    assert found["state"] == "formed" and found["text"].startswith("one world of 2 nodes"), found
    assert [event["kind"] for event in await events(mesh, group_id)] == ["rendezvous_formed"]
    assert await alerts(mesh, "all") == {}
