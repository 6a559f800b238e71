"""What only containers have to survive: the engine, its images, its names and its exit codes."""

import asyncio
import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from agentd.runtime.base import Mount, RuntimeRefused
from agentd.runtime.docker import runtime as runtime_rules
from agentd.runtime.docker.plan import container_name
from agentd.shim.record import read_record
from tests.docker.engine import IMAGE, docker, engine_pid, engine_socket
from tests.docker.engine_door import EngineDoor
from tests.docker.hosts import LOOP, DockerHost, docker_host
from tests.integration.host_family import state
from tests.waiting import eventually

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
async def host() -> AsyncIterator[DockerHost]:
    async with docker_host() as made:
        yield made


@pytest.mark.attack(14, 15)
async def test_a_container_has_no_more_than_it_needs(host: DockerHost) -> None:
    (host.root / "ck").mkdir()
    spec = host.spec(LOOP, memory_bytes=256 << 20, cpus=0.5, ulimits={"nofile": 1000})
    spec = await host.start_as(spec, mounts=(Mount(str(host.root / "ck"), "/checkpoint"),), gpus=("SIM-1",))
    await host.says("up")
    (shown,) = json.loads(docker("inspect", container_name(spec)))
    limits, config = shown["HostConfig"], shown["Config"]
    assert limits["CapDrop"] == ["ALL"]
    assert limits["SecurityOpt"] == ["no-new-privileges"]
    assert (limits["Privileged"], limits["CapAdd"], limits["Binds"], limits["Devices"]) == (False, None, None, None)
    assert limits["DeviceRequests"] in (None, [])
    assert "NVIDIA_VISIBLE_DEVICES=void" in config["Env"]
    assert (limits["NetworkMode"], limits["IpcMode"], limits["PidMode"]) == ("host", "private", "")
    assert (limits["Memory"], limits["NanoCpus"]) == (256 << 20, 500_000_000)
    assert limits["ShmSize"] > 64 << 20
    assert limits["LogConfig"] == {"Type": "json-file", "Config": limits["LogConfig"]["Config"]}
    assert config["Labels"]["io.heteroflow.node"] == host.owner.node
    assert config["Labels"]["io.heteroflow.token"] == "7"


async def test_checkpoints_are_written_through_and_data_sets_are_not(host: DockerHost) -> None:
    for name in ("ck", "data"):
        (host.root / name).mkdir()
    mounts = (Mount(str(host.root / "ck"), "/checkpoint"), Mount(str(host.root / "data"), "/dataset", read_only=True))
    await host.start_as(host.spec("echo 1 >/checkpoint/a; echo 1 >/dataset/a || echo refused"), mounts=mounts)
    await host.until("exited")
    assert "refused" in host.lines()
    assert [path.name for path in host.root.glob("*/a")] == ["a"]


async def test_a_mount_that_is_not_there_is_not_made(host: DockerHost) -> None:
    missing = host.root / "not-mounted"
    await host.start_as(host.spec("true"), mounts=(Mount(str(missing), "/checkpoint"),))
    seen = await host.until("exited")
    assert seen.why == "start_failed"
    assert str(missing) in seen.text
    assert not missing.exists()


@pytest.mark.attack(13)
@pytest.mark.parametrize("source", ["/", "/var/run/docker.sock", "/proc", "/run/x", "/dev/../dev/mem"])
async def test_the_host_itself_is_not_mounted(host: DockerHost, source: str) -> None:
    with pytest.raises(RuntimeRefused, match="is not given to a container"):
        await host.start_as(host.spec("true"), mounts=(Mount(source, "/checkpoint"),))


async def test_an_image_that_is_not_here_and_must_not_be_pulled(host: DockerHost) -> None:
    await host.start("true", image="heteroflow-test:no-such")
    seen = await host.until("exited")
    assert (seen.why, seen.exit_code) == ("start_failed", None)
    assert "not on this host" in seen.text


@pytest.mark.attack(22)
async def test_a_foreign_container_of_the_same_name_is_left_alone(host: DockerHost) -> None:
    spec = host.spec("echo mine")
    foreign = docker("create", "--name", container_name(spec), IMAGE, "true")
    try:
        await host.runtime.start(spec)
        assert (await host.until("exited")).exit_code == 0
        assert docker("inspect", "--format", "{{.Id}} {{.State.Status}}", container_name(spec)) == f"{foreign} created"
    finally:
        docker("rm", "--force", foreign)


async def test_a_container_of_ours_that_was_never_started_makes_way(host: DockerHost) -> None:
    spec = host.spec("echo mine")
    labels = {"cluster": "tests", "node": host.owner.node, "group": host.group, "attempt": "1", "rank": "0"}
    words = [word for name, value in labels.items() for word in ("--label", f"io.heteroflow.{name}={value}")]
    left = docker("create", "--name", container_name(spec), *words, IMAGE, "true")
    await host.runtime.start(spec)
    await host.until("exited")
    assert docker("inspect", "--format", "{{.Id}}", container_name(spec)) != left
    assert host.lines() == ["mine"]


async def test_exit_137_is_told_from_signal_9_and_from_memory_that_ran_out(host: DockerHost) -> None:
    await host.start("sleep 1; exit 137")
    own = await host.until("exited")
    assert (own.exit_code, own.signal, own.why) == (137, None, "exited")
    spec = await host.start(LOOP, rank=1)
    await host.says("up", 1)
    docker("kill", container_name(spec))
    killed = await host.until("exited", 1)
    assert (killed.exit_code, killed.signal, killed.why) == (None, 9, "killed")
    assert "memory" in killed.text and "no sign" in killed.text
    await host.start("sleep 1; exec dd if=/dev/zero of=/dev/null bs=200M count=1", rank=2, memory_bytes=32 << 20)
    starved = await host.until("exited", 2)
    assert (starved.signal, starved.why) == (9, "killed")
    assert starved.text.startswith("out of memory")


async def test_data_loaders_have_room_in_shared_memory(host: DockerHost) -> None:
    await host.start("dd if=/dev/zero of=/dev/shm/x bs=1M count=200 && echo written")
    await host.until("exited")
    assert "written" in host.lines()


async def test_a_stop_reaches_the_program_through_its_shells_and_the_shells_go_on(host: DockerHost) -> None:
    save = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    await host.start(f'true && sh -c "{save}" && echo and; echo last')
    await host.says("up")
    await host.runtime.stop((await host.seen()).id, 30, "user")
    seen = await host.until("exited")
    assert (seen.exit_code, seen.signal, seen.why) == (0, None, "stopped")
    # The trapping shell's own child hears it too, and the shell says so.
    assert [line for line in host.lines() if line != "Terminated"] == ["up", "saved", "and", "last"]


async def test_long_lines_and_lines_alike_come_as_they_were_written(host: DockerHost) -> None:
    long = "i=0; printf START; while [ $i -lt 400 ]; do printf %0100d 7; i=$((i+1)); done; echo END"
    await host.start(f"{long}; echo next; for n in 1 2 3; do echo loss=0.0; done; printf unfinished")
    await host.until("exited")
    lines = host.lines()
    assert [len(lines[0]), *lines[1:]] == [40008, "next", *["loss=0.0"] * 3, "unfinished"]


async def test_a_shim_that_was_killed_takes_its_container_along(host: DockerHost) -> None:
    await host.start("trap '' TERM; " + LOOP)
    await host.says("up")
    os.kill(host.shim_pid(), signal.SIGKILL)
    assert (await host.until("exited")).why == "lost"
    assert not host.alive()


@pytest.mark.parametrize("there", [True, False])
async def test_a_container_whose_directory_was_removed_is_ended_with_an_agent_or_before_its_next(
    host: DockerHost, there: bool
) -> None:
    await host.start("trap '' TERM; " + LOOP)
    await host.says("up")
    record = read_record(str(host.directory()))
    if not there:
        os.kill(host.shim_pid(), signal.SIGSTOP)
        await host.runtime.close()
    shutil.rmtree(host.directory())
    if there:
        assert (await host.until("exited")).why == "lost"
    else:
        host.runtime = host.made()
        await host.runtime.open()
    assert record is not None and state(record.pid) in ("", "Z", "X")
    if not there:
        os.kill(record.shim_pid, signal.SIGCONT)


async def test_a_removed_task_leaves_no_container_also_after_a_restart(host: DockerHost) -> None:
    for rank in (0, 1):
        spec = await host.start("true", rank=rank)
        await host.until("exited", rank)
        await host.runtime.remove(spec.id)
        await host.restart()

    async def gone() -> bool:
        return docker("ps", "--all", "--quiet", "--filter", f"label=io.heteroflow.node={host.owner.node}") == ""

    await eventually("no container left", gone)


async def test_an_agent_that_died_before_the_start_is_followed_by_one_that_starts_it(host: DockerHost) -> None:
    """Nothing of the task has run, so this is still its one start."""
    await host.runtime.close()
    host.runtime = host.made(str(host.root / "no-engine.sock"))
    await host.runtime.open()
    spec = await host.start("echo once")

    async def told() -> bool:
        return "does not answer" in (await host.seen()).text

    await eventually("the state says why it does not start", told)
    await host.restart()
    assert (await host.until("exited")).exit_code == 0
    assert host.lines() == ["once"]
    assert (await host.runtime.start(spec)).state == "exited"


async def test_an_agent_that_died_when_it_had_given_the_container_to_a_shim_makes_no_second_one(
    host: DockerHost,
) -> None:
    """The shim may never have come to be, or be a moment from starting: an end is written, and it starts nothing."""
    await host.runtime.close()
    spec = host.spec("echo never")
    host.runtime = host.made(str(host.root / "no-engine.sock"))
    await host.runtime.start(spec)
    await host.runtime.close()
    order = {"id": "0" * 64, "socket": engine_socket(), "log_files": 4, "log_file_bytes": 1}
    (host.directory() / "container.json").write_text(json.dumps(order))
    host.runtime = host.made()
    await host.runtime.open()
    assert (await host.until("exited")).why == "lost"
    assert docker("ps", "--all", "--quiet", "--filter", f"label=io.heteroflow.group={host.group}") == ""


@pytest.fixture
def silent_registry() -> Iterator[str]:
    """host:port of one that takes every connection and never answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def hold() -> None:
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=hold, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for one in held:
        one.close()


async def test_a_stop_while_the_image_is_pulled_is_done_at_once(host: DockerHost, silent_registry: str) -> None:
    spec = await host.start(LOOP, image=f"{silent_registry}/slow:1", pull="missing")

    async def pulling() -> bool:
        return "pulling image" in (await host.seen()).text

    await eventually("the state says that the image is pulled", pulling)
    begun = time.monotonic()
    await host.runtime.stop(spec.id, 30, "user")
    assert (await host.until("exited")).why == "stopped"
    assert time.monotonic() - begun < 5
    await host.runtime.remove(spec.id)
    assert docker("ps", "--all", "--quiet", "--filter", f"label=io.heteroflow.group={host.group}") == ""


async def test_a_hung_engine_holds_up_neither_list_nor_stop_nor_fence(host: DockerHost) -> None:
    await host.start(LOOP)
    await host.start(LOOP, rank=1)
    await host.says("up")
    await host.says("up", 1)
    engine = engine_pid()
    os.kill(engine, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        await host.start("echo late", rank=2)
        await host.runtime.stop((await host.seen(1)).id, 0.2, "user")
        assert time.monotonic() - begun < 2

        async def told() -> bool:
            return "not answering for" in (await host.seen(2)).text

        await eventually("the state says that Docker is silent", told)

        async def ended() -> bool:
            return not host.alive(1)

        await eventually("the stopped container's processes gone", ended)
        assert (await host.seen()).state == "running"
        assert host.alive()
    finally:
        os.kill(engine, signal.SIGCONT)
    assert (await host.until("exited", 1)).why == "stopped"
    await host.until("exited", 2)
    assert host.lines(2) == ["late"]
    assert (await host.seen()).state == "running"


async def test_a_start_that_the_engine_never_answers_is_given_up_with_the_reason_and_leaves_nothing(
    host: DockerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mesh gives up a start after a minute, and would not know why."""
    monkeypatch.setattr(runtime_rules, "_MAKE_S", 2.0)
    monkeypatch.setattr(runtime_rules, "_SWEEP_S", 1.0)
    door = EngineDoor(host.root / "door.sock")
    try:
        await host.runtime.close()
        host.runtime = host.made(str(door.path))
        await host.runtime.open()
        door.hang()
        spec = await host.start("echo never")
        seen = await host.until("exited")
        assert (seen.why, seen.exit_code, seen.signal) == ("lost", None, None)
        assert "no container was made within 2 s" in seen.text
        await host.runtime.remove(spec.id)
        door.open()

        async def gone() -> bool:
            await host.runtime.engine.rest(1)
            return docker("ps", "--all", "--quiet", "--filter", f"label=io.heteroflow.group={host.group}") == ""

        await eventually("what the engine made too late to be removed", gone)
    finally:
        door.close()


async def test_a_grace_longer_than_any_deadline_of_ours_is_given_whole(
    host: DockerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_S", "CREATE_S", "REMOVE_S", "_WATCH_S"):
        monkeypatch.setattr(runtime_rules, name, 2.0)
    # Not `sleep 6`: that is a program of its own, and would hear the signal too.
    save = "n=0; while [ $n -lt 12 ]; do busybox usleep 500000; n=$((n+1)); done; echo saved; exit 0"
    await host.start(f"trap '{save}' TERM; {LOOP}")
    await host.says("up")
    begun = time.monotonic()
    await host.runtime.stop((await host.seen()).id, 60, "user")
    seen = await host.until("exited")
    assert (seen.exit_code, seen.signal, seen.why) == (0, None, "stopped")
    assert "saved" in host.lines()
    assert time.monotonic() - begun > 6


async def test_the_lease_ends_containers_without_agent_and_engine(host: DockerHost) -> None:
    await host.start("trap 'echo asked' TERM; " + LOOP)
    await host.says("up")
    await host.runtime.close()
    engine = engine_pid()
    os.kill(engine, signal.SIGSTOP)
    try:
        (host.root / "lease").unlink()

        async def ended() -> bool:
            return not host.alive()

        await eventually("the container fenced", ended)
    finally:
        os.kill(engine, signal.SIGCONT)
    await host.restart()
    seen = await host.until("exited")
    assert (seen.why, seen.signal) == ("fenced", 9)


async def test_many_ends_leave_nothing_open(host: DockerHost) -> None:
    async def idle() -> bool:
        return threading.active_count() <= threads and len(os.listdir("/proc/self/fd")) <= files

    # Not in the middle of a look at the engine, which has a thread and a connection of its own.
    await host.runtime.engine.rest(5)
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd")) + 2
    await asyncio.gather(*(host.start("true", rank=rank) for rank in range(4)))
    for rank in range(4):
        await host.until("exited", rank)
    await eventually("threads and files as before", idle)
