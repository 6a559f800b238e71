"""Inference and container groups on real processes: a server that is killed, refused its port, moved and stopped."""

import asyncio
import contextlib
import os
import signal
import socket
import sys

import aiohttp
import pytest

from tests.free_port import free_port
from tests.integration.mesh_fixture import RunningMesh
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SERVE = f'exec {sys.executable} -m http.server --bind "$HETEROFLOW_ADDRESS" "$PORT"'


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    running = RunningMesh(tmp_path_factory.mktemp("mesh"), n=3)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def port():
    return free_port()


def service(name, port, command=SERVE, **over):
    task = {"command": command, "gpu_required": 1, "stop_grace_s": 3, "ports": {"http": port}}
    return {"name": name, "task_type": "inference", "task": {**task, **over}}


async def answers(group):
    """Whether the server of its first task can be asked."""
    timeout = aiohttp.ClientTimeout(total=2)
    url = f"http://{group['tasks'][0]['endpoints']['http']}/"
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return response.status == 200


async def serving(mesh, group_id, attempt=1, node=1, within_s=30.0):
    async def up():
        group = await mesh.group(group_id, node)
        assert group["status"] not in ("completed", "failed", "stopped"), group
        return group if group["attempt"] >= attempt and group["status"] == "running" and await answers(group) else None

    return await eventually(lambda: f"attempt {attempt} of {group_id} to answer", up, within_s)


def servers(mesh, port):
    return [
        pid
        for node in mesh.nodes
        for pid in node.family()
        if f"http.server --bind {node.api.rpartition(':')[0]} {port} " in _cmdline(pid)
    ]


def _cmdline(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode()
    return ""


async def stop(mesh, group_id):
    assert (await mesh.nodes[0].call("POST", f"/task-groups/{group_id}/stop")).status == 200
    return await mesh.status(group_id, "stopped")


async def events(mesh, group_id, node=1):
    found = await mesh.nodes[node - 1].call("GET", f"/task-groups/{group_id}/fault-events")
    return [event["kind"] for event in found.value["events"]]


async def test_a_killed_server_is_built_again_and_a_stopped_one_is_not(mesh, port):
    group_id = await mesh.submit(service("killed", port))
    first = await serving(mesh, group_id)
    assert first["rebuilds"] == 0 and first["n_nodes"] == 1 and first["per_node_gpu"] == 1
    (pid,) = servers(mesh, port)
    os.kill(pid, signal.SIGKILL)
    again = await serving(mesh, group_id, attempt=2)
    assert (again["rebuilds"], again["restarts"], again["failure"]) == (1, 0, None)
    kinds = await events(mesh, group_id)
    assert [kind for kind in kinds if kind in ("failed", "rebuilding", "completed")] == ["failed", "rebuilding"]

    await stop(mesh, group_id)
    await eventually("the server to be gone", lambda: _none(servers(mesh, port)))


async def _none(found):
    return not found


async def test_an_exit_with_0_is_no_end_of_a_service(mesh, port):
    command = f'[ "$HETEROFLOW_ATTEMPT" = 1 ] && exit 0; {SERVE}'
    group_id = await mesh.submit(service("leaves", port, command))
    again = await serving(mesh, group_id, attempt=2)
    assert again["rebuilds"] == 1
    for way in ("sleep", "wake", "scale"):
        refused = await mesh.nodes[1].call("POST", f"/task-groups/{group_id}/{way}")
        assert (refused.status, refused.value["code"]) == (422, "not_supported_yet"), refused
    await stop(mesh, group_id)


async def test_what_it_is_told(mesh, port):
    command = "env | grep -E '^(HETEROFLOW_|PORT|MASTER_|PET_|WORLD|NNODES|NODE_RANK)' ; sleep 600"
    document = service("told", port, command, ports={"http": port, "admin": port + 1 if port < 60_000 else port - 1})
    document["inference"] = {"n_nodes": 2}
    group_id = await mesh.submit(document)
    group = await mesh.status(group_id, "running")

    async def told():
        lines = await mesh.lines(group_id, rank=1)
        env = dict(line["text"].split("=", 1) for line in lines if "=" in line["text"])
        return env if "NODE_RANK" in env else None

    env = await eventually("rank 1 to say what it sees", told)
    assert env["HETEROFLOW_PORT_HTTP"] == str(port) and "PORT" not in env and "HETEROFLOW_PORT_ADMIN" in env
    assert env["NODE_RANK"] == "1" and env["NNODES"] == "2" and env["MASTER_ADDR"].startswith("127.")
    assert not {name for name in env if name.startswith("PET_")} and "WORLD_SIZE" not in env
    at = group["tasks"][1]["endpoints"]["http"]
    assert at == f"{env['HETEROFLOW_ADDRESS']}:{port}"
    await stop(mesh, group_id)
    assert (await mesh.group(group_id))["tasks"][1]["endpoints"] == {}


async def test_a_port_that_others_have_is_passed_over(mesh, port):
    """Held by processes that the mesh does not know: on two nodes it goes to the third, on three it waits."""
    hosts = [node.api.rpartition(":")[0] for node in mesh.nodes]
    with contextlib.ExitStack() as taken:
        listeners = [taken.enter_context(socket.create_server((host, port))) for host in hosts]
        group_id = await mesh.submit(service("crowded", port))

        async def refused():
            return (await mesh.group(group_id))["rollbacks"] >= 2

        await eventually("two nodes to refuse it", refused)
        assert "claim_failed" in await events(mesh, group_id)
        listeners[2].close()
        up = await serving(mesh, group_id, within_s=60)
        assert up["nodes"] == [mesh.nodes[2].name] and up["rebuilds"] == 0
    await stop(mesh, group_id)


async def test_containers(mesh):
    """Run once, without a rendezvous, with or without cards."""
    task = {"command": 'echo "$NODE_RANK of $NNODES, port $MASTER_PORT"', "gpu_required": 0}
    made = await mesh.nodes[2].call("POST", "/tasks", {"name": "one task", "task": task})
    assert made.status == 201, made
    single = await mesh.status(made.value["group_id"], "completed", "failed")
    assert (single["status"], single["task_type"], single["n_nodes"]) == ("completed", "container", 1)
    assert [line["text"] for line in await mesh.lines(single["group_id"])] == ["0 of 1, port "]
    failing = {**task, "command": 'test "$NODE_RANK" = 0 && sleep 600; exit 7', "stop_grace_s": 1}
    several = {"name": "three", "task_type": "container", "container": {"n_nodes": 3}, "task": failing}
    ended = await mesh.status(await mesh.submit(several), "failed", "completed")
    assert ended["failure"]["rank"] in (1, 2) and ended["failure"]["exit_code"] == 7, ended
    again = await mesh.nodes[1].call("POST", f"/task-groups/{ended['group_id']}/resubmit")
    assert again.status == 201, again
    await mesh.status(again.value["group_id"], "failed")


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"task_type": "training", "preemptible": True}, "not_for_training", "preemptible"),
        ({"task_type": "training", "task": {"preemptible": True}}, "not_for_training", "task.preemptible"),
        ({"task_type": "training", "training": {"preemptible": "yes"}}, "not_for_training", "training.preemptible"),
        ({"task_type": "training"}, "not_for_type", "task_type"),
        ({"task_type": "inference"}, "not_for_type", "task_type"),
        ({"task_type": 5}, "not_for_type", "task_type"),
        ({"container": {"n_nodes": 2}}, "single_task", "container.n_nodes"),
        ({"training": {"framework": "ddp"}}, "invalid_document", "training"),
        ({"preemptible": True}, "invalid_document", "preemptible"),
    ],
)
async def test_the_single_task_route_takes_containers_alone(mesh, change, code, field):
    document = {"name": "one task", "task": {"command": "true", "gpu_required": 0}, **change}
    refused = await mesh.nodes[0].call("POST", "/tasks", document)
    assert (refused.status, refused.value["code"], refused.value["field"]) == (400, code, field), refused


async def test_a_service_goes_elsewhere_when_its_host_dies(mesh, port):
    group_id = await mesh.submit(service("lost", port))
    first = await serving(mesh, group_id)
    victim = next(node for node in mesh.nodes if [node.name] == first["nodes"])
    reader = next(node.number for node in mesh.nodes if node is not victim)
    await asyncio.to_thread(victim.kill_host)
    again = await serving(mesh, group_id, attempt=2, node=reader, within_s=60)
    assert again["nodes"] != first["nodes"] and (again["restarts"], again["rebuilds"]) == (1, 0)
    await mesh.nodes[reader - 1].call("POST", f"/task-groups/{group_id}/stop")
    await mesh.status(group_id, "stopped", node=reader)
