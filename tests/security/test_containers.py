"""Attacks by what a document asks for: refused by the API, and again by the node, also where the API was gone round.

What needs an engine is in tests/docker/test_hardened.py.
"""

import copy
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentd.claims.claimer import Claimer, ClaimRequest
from agentd.core.claim import ClaimRefused
from mesh.memory import MemoryMesh
from schemas.commands import command
from schemas.rules.environment import PLATFORM_NAMES
from schemas.rules.host_variables import image_variables
from schemas.task_group import accepted_task_group, task_findings
from tests.integration.memory_hosts import MemoryHost, State
from tests.integration.served_api import AUTH, served

IMAGE = "team/pt:1.2"
HOST_VARIABLES = (
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "GLIBC_TUNABLES",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "CONTAINERD_ADDRESS",
    "CONTAINER_HOST",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_REQUIRE_CUDA",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HETEROFLOW_TASK_DIR",
    "HETEROFLOW_API_TOKEN",
    "MASTER_ADDR",
    "RANK",
    "PET_NNODES",
)
HOST_FIELDS: dict[str, Any] = {
    "privileged": True,
    "devices": ["/dev/mem"],
    "pid": "host",
    "pid_mode": "host",
    "ipc_mode": "host",
    "network_mode": "none",
    "userns_mode": "host",
    "cap_add": ["SYS_ADMIN"],
    "security_opt": ["seccomp=unconfined"],
    "runtime": "nvidia",
    "volumes": ["/:/host"],
    "volumes_from": ["other"],
    "volume_driver": "local",
    "cgroup_parent": "/",
}
MOUNTS: dict[str, dict[str, Any]] = {
    "the engine's socket": {"source": "/var/run/docker.sock", "target": "/s"},
    "its directory": {"source": "/run", "target": "/s"},
    "what it lies in": {"source": "/var", "target": "/s"},
    "the process table": {"source": "/proc", "target": "/p"},
    "another process": {"source": "/proc/1/root", "target": "/p"},
    "the kernel": {"source": "/sys/fs/cgroup", "target": "/p"},
    "a disk": {"source": "/dev/sda", "target": "/p"},
    "keys": {"source": "/etc", "target": "/p"},
    "everything": {"source": "/", "target": "/p"},
    "by way of ..": {"source": "/data/../etc", "target": "/p"},
    "the agent": {"source": "/var/lib/heteroflow", "target": "/p"},
    "a volume with a driver": {
        "type": "volume",
        "source": "/data/a",
        "target": "/p",
        "volume_options": {"driver": "local", "driver_opts": {"type": "none", "o": "bind", "device": "/etc"}},
    },
    "driver options alone": {"source": "/data/a", "target": "/p", "driver_opts": {"device": "/etc", "o": "bind"}},
    "a named volume": {"source": "volume", "target": "/p"},
    "propagation": {"source": "/data/a", "target": "/p", "propagation": "shared"},
    "over the image's own": {"source": "/data/a", "target": "/etc/ld.so.preload"},
}


def attacks() -> dict[str, dict[str, Any]]:
    """Name of the attack: fields of `task`."""
    found: dict[str, dict[str, Any]] = {f"env {name}": {"env": {name: "x"}} for name in HOST_VARIABLES}
    found |= {f"field {name}": {name: value} for name, value in HOST_FIELDS.items()}
    found |= {f"mount of {name}": {"mounts": [mount]} for name, mount in MOUNTS.items()}
    return found


def document(path: str = "/data/ckpt/x", **task: Any) -> dict[str, Any]:
    return {
        "name": "attack",
        "task_type": "training",
        "training": {
            "framework": "ddp",
            "launcher": "script",
            "n_nodes": 1,
            "per_node_gpu": 1,
            "checkpoint_path": path,
        },
        "task": {"image": IMAGE, "command": ["train"], "gpu_required": 1, **task},
    }


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Any]:
    async with served(tmp_path) as client:
        yield client


async def test_the_api_takes_the_document_that_all_attacks_are_made_of(api: Any) -> None:
    asked = document(env={"NCCL_DEBUG": "INFO"}, mounts=[{"source": "/data/a", "target": "/p"}])
    async with api.post("/api/v1/task-groups", json=asked, headers=AUTH) as response:
        assert response.status == 201, await response.text()


@pytest.mark.attack(13, 14, 16, 17, 18, 19)
async def test_the_api_refuses_each_with_what_to_do_and_keeps_nothing(api: Any, attempts: Counter[str]) -> None:
    for name, task in attacks().items():
        attempts["tried"] += 1
        async with api.post("/api/v1/task-groups", json=document(**task), headers=AUTH) as response:
            problem = await response.json()
            assert response.status == 400, (name, problem)
            assert problem["findings"], (name, problem)
            assert all(one["path"].startswith("task.") and one["hint"] for one in problem["findings"]), (name, problem)
    async with api.get("/api/v1/task-groups", headers=AUTH) as response:
        assert (await response.json())["groups"] == []


class Host:
    """A node that gets documents which no API has seen."""

    def __init__(self, directory: Path) -> None:
        self.mesh, self.directory = MemoryMesh(), directory
        self.state = State(self.mesh, directory)
        self.host = MemoryHost(self.mesh, "n1", directory)
        self.groups = 0

    async def failure(self, document: dict[str, Any]) -> dict[str, Any]:
        """How the group ends that is submitted past the API."""
        self.groups += 1
        group_id = f"tg-{self.groups:020d}"
        fields = {"document": document, "tenant": "t", "user": "u", "warnings": [], "resubmit_of": None}
        outcome = await self.mesh.propose(command("SubmitGroup", group_id=group_id, **fields))
        assert outcome["ok"], outcome
        await self.state.bind(group_id, ["n1"])
        await self.state.until(group_id, lambda group, tasks: group["status"] == "failed" and tasks[0]["released"], 10)
        failure: dict[str, Any] = (await self.state.get("group", group_id))["failure"]
        return failure


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path)
    await made.host.start()
    yield made
    await made.host.stop()


@pytest.mark.attack(13, 14, 16, 17, 18, 19, 21)
async def test_a_node_refuses_each_again_when_it_came_past_the_api(node: Host, attempts: Counter[str]) -> None:
    accepted, _ = accepted_task_group(document(f"{node.directory}/ck"), (f"{node.directory}/",))
    assert task_findings(accepted) == []
    for name, task in attacks().items():
        forged = copy.deepcopy(accepted)
        forged["task"] |= task
        assert task_findings(forged), name
    # A group with an image is bound to nodes of the docker runtime only; what a claim reads is the same.
    accepted["task"].pop("image")
    accepted["task"].pop("pull")
    for name, task in attacks().items():
        attempts["tried"] += 1
        forged = copy.deepcopy(accepted)
        forged["task"] |= task
        failure = await node.failure(forged)
        assert "this host does not run it" in failure["text"], (name, failure)
    assert await node.host.runtime.list() == []


@pytest.mark.attack(13)
async def test_a_node_gives_nothing_of_its_agent_away_whatever_is_allowed_on_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "agent" / "tasks").mkdir(parents=True)
    (home / "data").mkdir()
    (tmp_path / "link").symlink_to(home / "agent")
    (tmp_path / "out").symlink_to("/etc")
    runtime = MemoryHost(MemoryMesh(), "n1", tmp_path).runtime
    claimer = Claimer(
        ["c"], (f"{tmp_path}/",), home / "agent" / "tasks", "127.9.7.6", runtime.get_image, [str(home / "agent")]
    )

    async def verdict(**fields: Any) -> str:
        request = ClaimRequest("x", ("c",), 1, 0, None, None)
        held = await claimer.claim(replace(request, **fields), {})
        return held.code if isinstance(held, ClaimRefused) else "held"

    assert await verdict(mounts=(str(home / "data"),)) == "held"
    for source in (home / "agent", home / "agent" / "tasks", home, tmp_path / "link"):
        assert await verdict(mounts=(str(source),)) == "host_path"
        assert await verdict(dataset_path=str(source)) == "host_path"
        assert await verdict(checkpoint_path=str(source)) == "host_path"
    for field in ("dataset_path", "checkpoint_path"):
        assert await verdict(**{field: str(tmp_path / "out")}) == "path_leaves_allowed"
    assert await verdict(mounts=(str(tmp_path / "out"),)) == "path_leaves_allowed"


@pytest.mark.attack(17, 18)
def test_an_image_loses_what_speaks_to_the_host_and_keeps_what_it_needs() -> None:
    image = [
        "PATH=/opt/conda/bin:/bin",
        "LD_PRELOAD=/proc/self/cwd/poc.so",
        "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/proc/self/cwd:relative::/opt/python/lib:/usr/../data/lib:/tmp/x",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "NVIDIA_REQUIRE_CUDA=cuda>=12.4",
        "NVIDIA_MIG_CONFIG_DEVICES=all",
        "CUDA_VISIBLE_DEVICES=0,1,2,3",
        "DOCKER_HOST=tcp://127.0.0.1:2375",
        "RANK=0",
        "HETEROFLOW_RESUME_FROM_CHECKPOINT=/checkpoint/evil",
        "CUDA_HOME=/usr/local/cuda",
    ]
    changed = image_variables(image, {"NVIDIA_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": ""})
    assert changed == {
        "LD_PRELOAD": None,
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/opt/python/lib",
        "NVIDIA_MIG_CONFIG_DEVICES": None,
        "DOCKER_HOST": None,
        "RANK": None,
        "HETEROFLOW_RESUME_FROM_CHECKPOINT": None,
    }
    assert image_variables([f"{name}=1" for name in PLATFORM_NAMES], {}) == dict.fromkeys(PLATFORM_NAMES)


@pytest.mark.attack(20)
async def test_words_of_a_shell_in_any_field_start_nothing(
    api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ATTACKS 20: names, labels and parameters are data, and an image that could be read as an option is none."""
    monkeypatch.chdir(tmp_path)
    mark = Path("ran")
    words = f"$(touch {mark}); `touch {mark}` && touch {mark} | touch {mark}"
    asked = document()
    asked |= {"name": words[:100], "labels": {"a": words}, "notes": words}
    asked["training"]["hyper_params"] = {"lr": words}
    asked["task"] |= {"env": {"A": words}, "command": ["echo", words]}
    async with api.post("/api/v1/task-groups", json=asked, headers=AUTH) as response:
        made = await response.json()
        assert response.status == 201, made
    async with api.get(f"/api/v1/task-groups/{made['group_id']}", headers=AUTH) as response:
        kept = (await response.json())["config"]
    assert kept["labels"]["a"] == kept["task"]["env"]["A"] == kept["task"]["command"][1] == words
    for image in ("--privileged", "-v/:/host", "x;id", "$(id)", "a b", "../x", "x\nid", "--help/x"):
        async with api.post("/api/v1/task-groups", json=document(image=image), headers=AUTH) as response:
            assert response.status == 400, image
    assert not mark.exists()
