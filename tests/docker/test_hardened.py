"""Attacks on a container's walls, with a real engine: what is inspected, and what a program finds inside."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentd.runtime.base import ContainerOptions, Mount, RuntimeRefused, TaskSpec
from agentd.runtime.docker.plan import Owner, container_body, container_name, over_image
from agentd.runtime.exec_session import ExecEnd
from schemas.exec_frames import STDOUT, ExecRequest
from tests.docker.engine import IMAGE, docker
from tests.docker.hosts import LOOP, DockerHost, docker_host

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(180)]
HOSTILE = "heteroflow-test:hostile"


@pytest.fixture
async def host() -> AsyncIterator[DockerHost]:
    async with docker_host() as made:
        yield made


def inspected(name: str) -> dict[str, Any]:
    (shown,) = json.loads(docker("inspect", name))
    result: dict[str, Any] = shown
    return result


@pytest.mark.attack(14, 15)
async def test_a_program_has_no_capability_no_way_to_one_and_a_filter_of_calls(host: DockerHost) -> None:
    """ATTACKS 14, 15: CAP_NET_RAW too."""
    look = "busybox grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status; busybox ls /dev; echo pids; busybox ps"
    spec = await host.start(look)
    await host.until("exited")
    lines = host.lines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    none = "0" * 16
    assert [status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")] == [none] * 5
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    devices = set(lines[lines.index(next(one for one in lines if one == "core" or one == "fd")) : lines.index("pids")])
    assert devices <= set("core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero".split())
    # Its own processes alone: the init, the shell and what the shell runs.
    assert len(lines) - lines.index("pids") < 8
    held = inspected(container_name(spec))["HostConfig"]
    assert (held["Privileged"], held["CapAdd"], held["CapDrop"]) == (False, None, ["ALL"])
    assert (held["PidMode"], held["IpcMode"], held["UTSMode"], held["UsernsMode"]) == ("", "private", "", "")
    assert (held["CgroupnsMode"], held["Devices"] or None, held["Binds"]) == ("private", None, None)
    assert held["SecurityOpt"] == ["no-new-privileges"]
    assert not held["VolumesFrom"] and not held["VolumeDriver"]


@pytest.mark.attack(17, 18)
async def test_an_image_s_environment_reaches_neither_hooks_nor_cards(host: DockerHost) -> None:
    """ATTACKS 17, 18: CVE-2025-23266 hands LD_PRELOAD of an image to a hook that runs as root on the host."""
    made = docker("create", IMAGE, "true")
    changes = [
        "ENV LD_PRELOAD=/proc/self/cwd/poc.so",
        "ENV LD_LIBRARY_PATH=/proc/self/cwd:/usr/lib",
        "ENV NVIDIA_VISIBLE_DEVICES=all",
        "ENV CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7",
        "ENV DOCKER_HOST=tcp://127.0.0.1:2375",
        "ENV OURS=kept",
    ]
    docker("commit", *(word for change in changes for word in ("--change", change)), made, HOSTILE)
    docker("rm", made)
    spec = await host.start("echo $OURS; busybox env", image=HOSTILE)
    await host.until("exited")
    lines = host.lines()
    assert lines[0] == "kept"
    said = inspected(container_name(spec))["Config"]["Env"]
    # A name alone is what takes a variable away: the runtime is handed those with a value.
    names = dict(entry.split("=", 1) for entry in said if "=" in entry)
    assert not names.keys() & {"LD_PRELOAD", "DOCKER_HOST", "CUDA_VISIBLE_DEVICES"}, said
    assert (names["NVIDIA_VISIBLE_DEVICES"], names["LD_LIBRARY_PATH"]) == ("void", "/usr/lib")
    assert not any(line.startswith(("LD_PRELOAD=", "DOCKER_HOST=", "CUDA_VISIBLE_DEVICES=")) for line in lines)


@pytest.mark.attack(18)
async def test_cards_in_inspect_are_exactly_those_of_the_order(host: DockerHost) -> None:
    """ATTACKS 18: whatever order and indexes the host has, by UUID; without cards none, and never `all`."""
    cards = ("GPU-5a6f0e2c-1", "GPU-77de01aa-2")
    for gpus, wanted in ((cards, list(cards)), ((), None), (("SIM-1", "SIM-2"), None)):
        spec = replace(host.spec("true"), gpus=gpus)
        options = spec.container
        assert options is not None
        # Of another owner: ours are swept away by the runtime where they have no task.
        body = container_body(spec, options, Owner("tests", "nobody"), "/d", 1 << 26, lambda source: "rprivate")
        made = await host.runtime.engine.call(
            30.0, lambda api, body=body: api.create_container_from_config(over_image(body, ()), None)
        )
        try:
            shown = inspected(made["Id"])
            requests = shown["HostConfig"]["DeviceRequests"] or []
            assert [one["DeviceIDs"] for one in requests] == ([wanted] if wanted else [])
            assert all(one["Count"] == 0 and one["Driver"] == "nvidia" for one in requests)
            visible = [entry for entry in shown["Config"]["Env"] if entry.startswith("NVIDIA_VISIBLE_DEVICES")]
            assert visible == [f"NVIDIA_VISIBLE_DEVICES={','.join(cards) if wanted else 'void'}"]
        finally:
            docker("rm", "--force", made["Id"])


@pytest.mark.attack(13, 16, 21)
@pytest.mark.parametrize("source", ["/", "/proc", "/sys", "/dev", "/var/run", "/var/lib/docker", "/etc", "/x/y.sock"])
async def test_no_path_to_the_host_is_mounted_though_a_claim_was_had(host: DockerHost, source: str) -> None:
    """ATTACKS 13, 16: at the last door, whoever let it through before."""
    with pytest.raises(RuntimeRefused, match="is not given to a container"):
        await host.start_as(host.spec("true"), mounts=(Mount(source, "/x"),))
    assert docker("ps", "--all", "--quiet", "--filter", f"label=io.heteroflow.node={host.owner.node}") == ""


@pytest.mark.attack(4, 5)
async def test_a_link_that_is_turned_after_the_claim_leads_nowhere(host: DockerHost) -> None:
    """ATTACKS 5, 13."""
    data = host.root / "data"
    (data / "good").mkdir(parents=True)
    (data / "link").symlink_to(data / "good")

    def refusal(source: str) -> str | None:
        return None if Path(os.path.realpath(source)).is_relative_to(data) else f"mount {source} leads out"

    host.runtime._source_refusal = refusal
    spec = host.spec("true")
    await host.start_as(spec, mounts=(Mount(str(data / "link"), "/x"),))
    await host.until("exited")
    assert inspected(container_name(spec))["Mounts"][0]["Source"] == str(data / "good")
    (data / "link").unlink()
    (data / "link").symlink_to("/etc")
    await host.start_as(host.spec("true", rank=1), mounts=(Mount(str(data / "link"), "/x"),))
    ended = await host.until("exited", 1)
    assert (ended.why, ended.failure_class) == ("start_failed", "container_create")
    assert "leads out" in ended.text


@pytest.mark.attack(22)
async def test_a_container_with_our_labels_but_not_ours_is_neither_adopted_nor_ended(host: DockerHost) -> None:
    """ATTACKS 22: what is ended is named by a task's own record, never by a label alone."""
    spec = await host.start(LOOP)
    await host.says("up")
    labels = inspected(container_name(spec))["Config"]["Labels"]
    words = [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
    forged = docker("run", "--detach", "--init", "--net", "none", *words, IMAGE, "busybox", "sleep", "600")
    try:
        await host.restart()
        assert [one.id for one in await host.runtime.list()] == [spec.id]
        await host.runtime.kill(spec.id)
        await host.until("exited")
        assert inspected(forged)["State"]["Running"] is True
    finally:
        docker("rm", "--force", forged)


@pytest.mark.attack(16)
async def test_an_engine_that_is_open_to_the_network_is_named(
    host: DockerHost, caplog: pytest.LogCaptureFixture
) -> None:
    """ATTACKS 16: the engine says it of itself."""

    class Info:
        def info(self) -> dict[str, Any]:
            told = "WARNING: API is accessible on http://0.0.0.0:2375 without encryption."
            return {"LiveRestoreEnabled": True, "Warnings": ["WARNING: No swap limit support", told]}

    async def call(deadline_s: float, ask: Any, read_s: float | None = None) -> Any:
        return ask(Info())

    host.runtime.engine.call = call  # type: ignore[method-assign]  # an engine that says what it is told
    try:
        assert await host.runtime._warn_of_no_live_restore()
    finally:
        del host.runtime.engine.call  # type: ignore[method-assign]  # the real one again
    assert [record for record in caplog.records if "2375" in record.getMessage()]
    assert not [record for record in caplog.records if "swap" in record.getMessage()]


@pytest.mark.attack(14)
async def test_options_of_a_container_are_a_closed_list() -> None:
    """ATTACKS 14: whatever a document holds, nothing else of it reaches the engine."""
    assert set(ContainerOptions.__dataclass_fields__) == {
        "image", "pull", "shm_bytes", "memory_bytes", "cpus", "user", "ulimits", "read_only_root",
    }  # fmt: skip


async def run_beside(host: DockerHost, spec: TaskSpec, *words: str, tty: bool = False) -> tuple[str, ExecEnd]:
    session = await host.runtime.exec(spec.id, ExecRequest(words, tty))
    said = b""
    try:
        while (chunk := await session.read()) is not None:
            said += chunk[1]
        return said.decode(), await session.ended()
    finally:
        await session.close()


@pytest.mark.attack(14, 21)
async def test_a_program_beside_a_task_has_its_walls_user_and_environment(host: DockerHost) -> None:
    spec = await host.start_as(host.spec(LOOP, user="1234:5678"), env={"OF_THE_TASK": "yes"})
    await host.says("up")
    walls = "busybox grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/self/status"
    look = f"busybox id -u; echo $OF_THE_TASK $TERM; {walls}"
    for tty in (False, True):
        said, end = await run_beside(host, spec, "/bin/sh", "-c", f"{look}; exit 3", tty=tty)
        lines = said.split()
        assert end.exit_code == 3
        assert lines[:2] == ["1234", "yes"]
        assert (lines[2] == "xterm") == tty
        assert lines[-8:] == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
    said, end = await run_beside(host, spec, "no-such-program")
    assert end.exit_code in (126, 127)


async def test_a_program_beside_a_task_ends_with_its_reader_and_with_the_task(host: DockerHost) -> None:
    spec = await host.start(LOOP)
    await host.says("up")

    async def running() -> int:
        return docker("top", container_name(spec), "-eo", "pid,args").count("sleep 7272")

    session = await host.runtime.exec(spec.id, ExecRequest(("/bin/sh", "-c", "echo on; busybox sleep 7272; true")))
    assert await session.read() == (STDOUT, b"on\n")
    assert await running()
    await session.close()
    assert not await running()
    session = await host.runtime.exec(spec.id, ExecRequest(("/bin/sh", "-c", "echo on; busybox sleep 7272"), tty=True))
    assert await session.read() == (STDOUT, b"on\r\n")
    await host.runtime.kill(spec.id)
    async with asyncio.timeout(30):
        while await session.read() is not None:
            pass
    assert (await session.ended()).exit_code != 0
    await session.close()
