"""What a document asks of its container, seen from the engine and from inside; cgroups are enforced by the kernel."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentd.runtime.base import Mount, TaskSpec
from agentd.runtime.docker.plan import container_name
from agentd.task_plan import container_options
from tests.docker.engine import IMAGE, docker
from tests.docker.hosts import LOOP, DockerHost, docker_host

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
async def host() -> AsyncIterator[DockerHost]:
    async with docker_host() as made:
        yield made


async def run(host: DockerHost, shell: str, mounts: tuple[Mount, ...] = (), **task: Any) -> tuple[TaskSpec, list[str]]:
    """task: fields of the document beside image and pull. Lines of output alone: beside errors they have no order."""
    options = container_options({"image": IMAGE, "pull": "never", **task})
    spec = await host.start_as(host.spec(f"{{ {shell}; }} 2>/dev/null"), container=options, mounts=mounts)
    await host.until("exited")
    return spec, host.lines()


def inspected(spec: TaskSpec) -> dict[str, Any]:
    (shown,) = json.loads(docker("inspect", container_name(spec)))
    result: dict[str, Any] = shown
    return result


async def test_memory_and_cores_are_limits_of_the_cgroup(host: DockerHost) -> None:
    look = (
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; "
        "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max"
    )
    spec, lines = await run(host, look, memory="64m", cpus="0.5")
    limits = inspected(spec)["HostConfig"]
    assert (limits["Memory"], limits["MemorySwap"], limits["NanoCpus"]) == (64 << 20, 64 << 20, 500_000_000)
    assert str(64 << 20) in lines
    assert any(line.split()[0] == "50000" for line in lines)


async def test_shared_memory_is_as_large_as_asked_for(host: DockerHost) -> None:
    spec, lines = await run(
        host, "busybox df -k /dev/shm | tail -n 1; dd if=/dev/zero of=/dev/shm/x bs=1M count=20 || echo full",
        shm_size="16m",
    )  # fmt: skip
    assert inspected(spec)["HostConfig"]["ShmSize"] == 16 << 20
    assert str(16 << 10) in lines[0].split()
    assert "full" in lines


async def test_limits_of_the_process_are_set(host: DockerHost) -> None:
    spec, lines = await run(host, "ulimit -n; ulimit -c; ulimit -H -n", ulimits={"nofile": 777, "core": 0})
    assert lines == ["777", "0", "777"]
    named = {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in inspected(spec)["HostConfig"]["Ulimits"]}
    assert named == {"nofile": (777, 777), "core": (0, 0)}


async def test_a_task_runs_as_its_user_and_reaches_only_what_that_user_may(host: DockerHost) -> None:
    (host.root / "ck").mkdir()
    spec, lines = await run(
        host, "id -u; id -g; echo x >/ck/x || echo refused", (Mount(str(host.root / "ck"), "/ck"),), user="1234:5678"
    )
    assert inspected(spec)["Config"]["User"] == "1234:5678"
    assert lines == ["1234", "5678", "refused"]


async def test_a_root_that_is_read_only_leaves_tmp_to_write_and_to_run_from(host: DockerHost) -> None:
    shell = "touch /x || echo refused; printf '#!/bin/sh\\necho ran\\n' >/tmp/a; busybox chmod +x /tmp/a; /tmp/a"
    spec, lines = await run(host, shell, read_only_root=True)
    assert inspected(spec)["HostConfig"]["ReadonlyRootfs"] is True
    assert lines == ["refused", "ran"]


async def test_mounts_are_read_only_unless_said_otherwise_and_follow_the_host(host: DockerHost) -> None:
    for name in ("code", "out"):
        (host.root / name).mkdir()
    (host.root / "code" / "t.py").write_text("one\n")
    mounts = (Mount(str(host.root / "code"), "/code", read_only=True), Mount(str(host.root / "out"), "/out"))
    spec, lines = await run(host, "cat /code/t.py; touch /code/y || echo refused; echo 2 >/out/x", mounts)
    assert lines == ["one", "refused"]
    assert (host.root / "out" / "x").read_text() == "2\n"
    shown = {mount["Destination"]: mount for mount in inspected(spec)["Mounts"]}
    assert (shown["/code"]["RW"], shown["/out"]["RW"]) == (False, True)
    assert {mount["Propagation"] for mount in shown.values()} <= {"rslave", "rprivate"}
    assert inspected(spec)["HostConfig"]["Binds"] is None


async def test_directory_environment_and_entry_point_are_the_task_s(host: DockerHost) -> None:
    spec = host.spec('echo "$PWD $A $PATH"')
    await host.start_as(spec, cwd="/root", env={"A": "b c"})
    await host.until("exited")
    assert host.lines() == ["/root b c /bin:/usr/bin"]
    assert inspected(spec)["Path"] == "/bin/sh"


async def test_what_is_asked_for_in_vain_ends_the_start_with_the_engine_s_words(host: DockerHost) -> None:
    options = container_options({"image": IMAGE, "pull": "never", "cpus": "4000"})
    await host.start_as(host.spec(LOOP), container=options)
    seen = await host.until("exited")
    assert (seen.why, seen.failure_class) == ("start_failed", "container_create")
    assert "Docker refused the container" in seen.text and "CPU" in seen.text
