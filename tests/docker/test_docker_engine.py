"""A mesh of one host with containers and one without, while the engine goes and comes, and jobs that cannot work."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.loopback_mesh import LoopbackMesh
from tests.docker.engine import IMAGE, remove_containers
from tests.docker.engine_door import EngineDoor
from tests.docker.registry import serving
from tests.waiting import until

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(300)]
LOOP = "echo up; while :; do sleep 0.1; done"


class MixedMesh(LoopbackMesh):
    """node-1 runs processes, node-2 containers."""

    def _command(self, node: int) -> list[str]:
        socket = str(self.directory / "engine.sock")
        also = ["--runtime", "docker", "--docker-socket", socket] if node == 2 else []
        return [*super()._command(node), *also]


class World:
    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hf-engine-"))
        self.door = EngineDoor(self.root / "engine.sock")
        self.mesh = MixedMesh(self.root, nodes=2, voters=1)

    def submit(self, command: str | list[str] = LOOP, image: str = IMAGE, **task: Any) -> str:
        document = {
            "name": "container test",
            "task_type": "training",
            "training": {"framework": "ddp", "n_nodes": 1, "per_node_gpu": 1},
            "task": {"command": command, "gpu_required": 1, "stop_grace_s": 1, **task},
        }
        if image:
            document["task"]["image"] = image  # type: ignore[index]  # a document is of object
        return str(self.mesh.api().call("POST", "/task-groups", document)["group_id"])

    def group(self, group: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.mesh.api().call("GET", f"/task-groups/{group}")
        return shown

    def until_status(self, group: str, status: str) -> dict[str, Any]:
        until(lambda: f"{group} to be {status}: {self.group(group)}", lambda: self.group(group)["status"] == status)
        return self.group(group)

    def why_waiting(self, group: str) -> dict[str, Any]:
        reason: dict[str, Any] = until("the reason", lambda: self.group(group)["pending_reason"])
        return reason

    def node(self, number: int) -> dict[str, Any]:
        listed = self.mesh.api().call("GET", "/nodes")["nodes"]
        return next(node for node in listed if node["node_id"] == f"node-{number}")

    def health(self, number: int) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.mesh.address(number)}/healthz", timeout=2) as answer:
            shown: dict[str, Any] = json.loads(answer.read())
            return shown

    def heteroflow(self, *words: str) -> str:
        flags = ("--node", self.mesh.address(1), "--token-file", str(self.mesh.token_file))
        command = [sys.executable, "-m", "console.cli.main", *words, *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "400"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        cluster = json.loads((self.mesh.data_dir(1) / "node.json").read_text()).get("cluster_id")
        self.mesh.stop()
        self.door.close()
        remove_containers(f"io.heteroflow.cluster={cluster}")
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    try:
        made.mesh.start()
        yield made
    finally:
        made.close()


def test_an_engine_that_hangs_or_is_gone_takes_no_tasks_harms_none_and_comes_back(world: World) -> None:
    running = world.submit()
    assert world.until_status(running, "running")["nodes"] == ["node-2"]
    assert world.health(2) == {"status": "ok", "reasons": []}
    for go in (world.door.hang, world.door.shut):
        go()
        try:
            until("the node to be known without an engine", lambda: world.node(2)["engine_down"])
            node = world.node(2)
            assert node["state"] == "ready" and "Docker at" in node["reason"] and node["gpus_free"] == 1
            assert "Docker at" in world.heteroflow("nodes")
            health = world.health(2)
            assert health["status"] == "degraded"
            assert any("container engine" in reason for reason in health["reasons"])
            waiting = world.submit()
            reason = world.why_waiting(waiting)
            assert reason["code"] == "engine_down"
            assert "the container engine of node-2 does not answer" in reason["text"]
            assert "container engine of node-2" in world.heteroflow("why", waiting)
            (queued,) = world.mesh.api().call("GET", "/queue")["queue"]
            assert queued["pending_reason"] == reason
            plain = world.submit("true", image="")
            assert world.until_status(plain, "completed")["nodes"] == ["node-1"]
            assert world.group(running)["status"] == "running"
        finally:
            world.door.open()
        until("the engine to be known again", lambda: not world.node(2)["engine_down"])
        world.until_status(waiting, "running")
        assert world.group(running)["status"] == "running"
        assert world.health(2)["status"] == "ok"
        world.mesh.api().call("POST", f"/task-groups/{waiting}/stop")
        world.until_status(waiting, "stopped")
    world.mesh.api().call("POST", f"/task-groups/{running}/stop")
    world.until_status(running, "stopped")


def test_the_image_that_ran_is_shown(world: World) -> None:
    with serving() as registry:
        digest = registry.push("team/pt:1", "one")
        image = f"{registry.name}/team/pt:1"
        group = world.submit("cat /made", image)
        shown = world.until_status(group, "completed")
        assert shown["tasks"][0]["image"]["digest"] == shown["image"]["digest"] == digest
        assert digest in world.heteroflow("show", group)


def test_an_attempt_that_goes_on_with_another_image_says_so(world: World) -> None:
    with serving() as registry:
        first = registry.push("team/pt:1", "one")
        group = world.submit(f"cat /made; {LOOP}", f"{registry.name}/team/pt:1", pull="always")
        world.until_status(group, "running")
        second = registry.push("team/pt:1", "two")
        record = world.mesh.data_dir(2) / "tasks" / group / "1" / "0" / "pid.json"
        os.kill(json.loads(record.read_text())["shim_pid"], signal.SIGKILL)
        until("the next attempt", lambda: world.group(group)["attempt"] == 2)
        shown = world.until_status(group, "running")
        assert shown["image"]["digest"] == second
        said = f"runs image {second[7:19]}, attempt 1 ran {first[7:19]}"
        assert said in world.heteroflow("events", group)
        world.mesh.api().call("POST", f"/task-groups/{group}/stop")
        world.until_status(group, "stopped")


def test_an_image_that_does_not_exist_fails_the_group_with_its_name(world: World) -> None:
    with serving() as registry:
        group = world.submit(image=f"{registry.name}/team/none:1")
        failed = world.until_status(group, "failed")
        assert failed["failure"]["class"] == "image_pull_permanent"
        for said in (failed["failure"]["text"], world.heteroflow("why", group)):
            assert f"{registry.name}/team/none:1" in said and "no such image" in said


def test_a_program_that_the_image_lacks_fails_the_group_with_its_name(world: World) -> None:
    group = world.submit(["no-such-program"])
    failed = world.until_status(group, "failed")
    assert failed["failure"]["class"] == "user_entrypoint"
    assert "no-such-program" in world.heteroflow("why", group)


def test_a_mount_that_is_not_there_sends_the_group_back_with_its_path(world: World) -> None:
    missing = world.root / "not-mounted"
    group = world.submit(mounts=[{"source": str(missing), "target": "/code"}])

    def told() -> bool:
        events = world.mesh.api().call("GET", f"/task-groups/{group}/fault-events")["events"]
        return any(event["kind"] == "rolled_back" and str(missing) in event["text"] for event in events)

    until("the path in the reason of a rollback", told)
    assert not missing.exists()
    missing.mkdir()
    world.until_status(group, "running")
    world.mesh.api().call("POST", f"/task-groups/{group}/stop")
    world.until_status(group, "stopped")


def test_a_stop_while_the_image_comes_is_done_at_once(world: World) -> None:
    with serving() as registry:
        registry.push("team/pt:1")
        registry.holding = True
        group = world.submit(image=f"{registry.name}/team/pt:1")
        world.until_status(group, "scheduling")
        until("the pull to be shown", lambda: "pulling image" in world.heteroflow("show", group))
        world.mesh.api().call("POST", f"/task-groups/{group}/stop")
        begun = time.monotonic()
        world.until_status(group, "stopped")
        assert time.monotonic() - begun < 5
        until("the card to be free", lambda: world.node(2)["gpus_free"] == 2)
        registry.let_go.set()
