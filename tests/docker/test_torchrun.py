"""PyTorch's own launcher over the mesh, the same command on hosts and in containers."""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.loopback_mesh import LoopbackMesh
from tests.docker.engine import TORCH_IMAGE, remove_containers, torch_engine_socket, torch_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"
TRAIN = "torchrun --nproc_per_node=$LOCAL_WORLD_SIZE $HETEROFLOW_DATASET_PATH/train_torch.py"
WAIT_S = 120.0

pytestmark = [pytest.mark.need("torch"), pytest.mark.slow, pytest.mark.timeout(300)]


class World:
    """A mesh of two nodes, each of one runtime, and one job on them."""

    def __init__(self, runtime: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hf-torch-"))
        self.docker = runtime == "docker"
        flags = ("--runtime", "docker", "--docker-socket", torch_engine_socket()) if self.docker else ()
        self.mesh = LoopbackMesh(self.root, nodes=2, voters=1, runtime=flags or ("--runtime", "process"))
        # In a container this is where the trainer is found, as a data set would be.
        shutil.copytree(EXAMPLES, self.root / "data")
        (self.root / "checkpoints").mkdir()

    def document(self, command: str, **hyper_params: Any) -> dict[str, Any]:
        task: dict[str, Any] = {"command": command, "gpu_required": 2, "stop_grace_s": 30}
        # The machine's cores are few: nobody may spin.
        task["env"] = {"OMP_NUM_THREADS": "1"}
        if self.docker:
            task["image"] = TORCH_IMAGE
        else:
            task["command"] = f"PATH={torch_environment()}/bin:$PATH; {command}"
        return {
            "name": "torch ddp over two hosts",
            "task_type": "training",
            "training": {
                "framework": "ddp",
                "n_nodes": 2,
                "per_node_gpu": 2,
                "checkpoint_path": str(self.root / "checkpoints"),
                "dataset_path": str(self.root / "data"),
                "hyper_params": {name: str(value) for name, value in hyper_params.items()},
            },
            "task": task,
        }

    def submit(self, document: dict[str, Any]) -> str:
        return str(self.mesh.api().call("POST", "/task-groups", document)["group_id"])

    def show(self, group: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.mesh.api().call("GET", f"/task-groups/{group}")
        return shown

    def until(self, group: str, *statuses: str) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while (shown := self.show(group))["status"] not in statuses:
            if time.monotonic() > deadline or shown["status"] == "failed":
                pytest.fail(f"{shown['status']} instead of {statuses}: {shown}\n" + "\n".join(self.lines(group)))
            time.sleep(0.1)
        return shown

    def lines(self, group: str) -> list[str]:
        return [line["text"] for line in self.mesh.api().lines(f"/task-groups/{group}/logs") if "text" in line]

    def says(self, group: str, pattern: str) -> str:
        deadline = time.monotonic() + WAIT_S
        while True:
            lines = self.lines(group)
            if found := next((line for line in lines if re.search(pattern, line)), None):
                return found
            if time.monotonic() > deadline:
                pytest.fail(f"no line like {pattern!r} in:\n" + "\n".join(lines))
            time.sleep(0.2)

    def reports(self, group: str) -> int:
        """The step that the trainer told through heteroflow_report, once it is 20."""
        deadline = time.monotonic() + WAIT_S
        while True:
            groups = self.mesh.api().call("GET", f"/telemetry?group={group}")["groups"]
            step = next((int(now["report"]["step"] or 0) for now in groups if now["report"]), 0)
            if step >= 20 or time.monotonic() > deadline:
                return step
            time.sleep(0.2)

    def saved(self) -> list[int]:
        return sorted(int(path.name.removeprefix("step-")) for path in (self.root / "checkpoints").glob("step-*"))

    def close(self) -> None:
        self.mesh.stop()
        if self.docker:
            # Those of an ended mesh are nobody's any more.
            cluster = json.loads((self.mesh.data_dir(1) / "node.json").read_text())["cluster_id"]
            remove_containers(f"io.heteroflow.cluster={cluster}")
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.need("docker"))])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    try:
        made.mesh.start()
        yield made
    finally:
        made.close()


def test_one_world_of_four_saves_when_stopped_through_shells_and_goes_on(world: World) -> None:
    command = f"cd / && {TRAIN} --step-delay 50; code=$?; echo the shell went on; exit $code"
    group = world.submit(world.document(command, steps=100_000, checkpoint_every=100_000))
    world.says(group, "step 20 loss")
    assert world.reports(group) >= 20
    starts = sorted(line for line in world.lines(group) if " started, pid " in line)
    assert [re.match(r"rank \d of \d", line)[0] for line in starts] == [f"rank {rank} of 4" for rank in range(4)]
    world.mesh.api().call("POST", f"/task-groups/{group}/stop")
    world.until(group, "stopped")
    lines = world.lines(group)
    (step,) = world.saved()
    assert lines.count("the shell went on") == 2
    loss = next(line for line in lines if line.startswith(f"rank 0 of 4 step {step} loss ")).rpartition(" ")[2]

    again = world.submit(world.document(TRAIN, steps=step + 10, checkpoint_every=100_000))
    world.until(again, "completed")
    resumed = [line for line in world.lines(again) if " resumes from " in line]
    assert len(resumed) == 4
    assert all(line.endswith(f"step {step}, loss {loss}") for line in resumed)
    assert world.saved() == [step, step + 10]
