"""An inference group and a container group as containers: the server's container is killed, and another one answers at
the same port."""

import asyncio

import aiohttp
import pytest

from tests.docker.engine import IMAGE, docker, engine_socket
from tests.free_port import free_port
from tests.integration.mesh_fixture import RunningMesh
from tests.waiting import eventually

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    running = RunningMesh(tmp_path_factory.mktemp("mesh"), n=1)
    running.loopback.runtime = ("--runtime", "docker", "--docker-socket", engine_socket())
    running.start()
    yield running
    running.stop()


async def answers(group):
    timeout = aiohttp.ClientTimeout(total=2)
    url = f"http://{group['tasks'][0]['endpoints']['http']}/"
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return (await response.text()).strip() == f"attempt {group['attempt']}"


async def serving(mesh, group_id, attempt):
    async def up():
        group = await mesh.group(group_id)
        assert group["status"] not in ("completed", "failed", "stopped"), group
        return group if (group["status"], group["attempt"]) == ("running", attempt) and await answers(group) else None

    return await eventually(lambda: f"attempt {attempt} to answer", up)


async def test_a_killed_container_is_built_again(mesh):
    port = free_port()
    command = 'cd /tmp && echo "attempt $HETEROFLOW_ATTEMPT" > index.html && '
    command += 'exec busybox httpd -f -p "$HETEROFLOW_ADDRESS:$PORT" -h /tmp'
    task = {"image": IMAGE, "command": command, "gpu_required": 0, "ports": {"http": port}, "stop_grace_s": 3}
    group_id = await mesh.submit({"name": "httpd in a container", "task_type": "inference", "task": task})
    await serving(mesh, group_id, 1)
    await asyncio.to_thread(docker, "kill", f"hf-{group_id}-1-0")
    again = await serving(mesh, group_id, 2)
    assert (again["rebuilds"], again["restarts"]) == (1, 0)
    assert (await mesh.nodes[0].call("POST", f"/task-groups/{group_id}/stop")).status == 200
    await mesh.status(group_id, "stopped")
    label = f"label=io.heteroflow.group={group_id}"

    async def left():
        return not await asyncio.to_thread(docker, "ps", "--all", "--quiet", "--filter", label)

    await eventually("its containers to be removed", left)


async def test_a_single_container_runs_once(mesh):
    task = {"image": IMAGE, "command": 'echo "$NVIDIA_VISIBLE_DEVICES"; exit 4', "gpu_required": 0}
    made = await mesh.nodes[0].call("POST", "/tasks", {"name": "one task", "task": task})
    ended = await mesh.status(made.value["group_id"], "failed", "completed", within_s=60)
    assert ended["failure"]["exit_code"] == 4
    assert [line["text"] for line in await mesh.lines(ended["group_id"])] == ["void"], "without cards it sees none"
