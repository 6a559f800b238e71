"""A group that goes on from another one's checkpoint: over HTTP, the command line, and on a real disk."""

import asyncio
import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentd.checkpoints.watch import CheckpointWatch
from agentd.http.context import API
from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.memory_hosts import PORT, MemoryHost, State
from tests.integration.served_api import AUTH, served
from tests.integration.test_cli import Cli
from tests.security.people import TENANTS, people

GROUPS = "/api/v1/task-groups"


@dataclass
class Lineage:
    """parent: ended, with step-10 and step-20 saved under its eyes."""

    client: Any
    cli: Cli
    mesh: MemoryMesh
    host: MemoryHost
    state: State
    place: Path
    parent: str = ""

    def document(self, **training: Any) -> dict[str, Any]:
        fields = {"parent_checkpoint": self.parent, "checkpoint_path": f"{self.place}/child", **training}
        return {"name": "child", "task_type": "training", "training": fields}

    async def submit(self, key: str = "", **training: Any) -> tuple[int, Any]:
        headers = AUTH | ({"Idempotency-Key": key} if key else {})
        async with self.client.post(GROUPS, json=self.document(**training), headers=headers) as response:
            return response.status, await response.json()

    async def shown(self, group_id: str) -> Any:
        async with self.client.get(f"{GROUPS}/{group_id}", headers=AUTH) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def run_parent(self) -> None:
        self.parent = await self.state.submit(hyper_params={"lr": "1e-4", "warmup": "010"}, keep_last_n=9)
        await self.state.bind(self.parent, ["n1"])
        await self.state.until(self.parent, lambda group, tasks: group["claimed"] == [0])
        await self.state.start(self.parent)
        await self.state.until(self.parent, lambda group, tasks: group["status"] == "running")
        for step in (10, 20):
            await self.parent_saves(step)

    async def parent_saves(self, step: int) -> None:
        save(self.place / "ckpt-1", step)
        watch = CheckpointWatch(self.mesh, self.host.feed, "n1", "uid-n1", (str(self.place),), every_s=0.0)
        async with asyncio.timeout(10):
            while ((await self.state.get("group", self.parent)).get("saved") or {}).get("step") != step:
                await watch.turn()
                await asyncio.sleep(0.01)

    async def stop(self, group_id: str) -> None:
        async with self.client.post(f"{GROUPS}/{group_id}/stop", headers=AUTH) as response:
            assert response.status == 200
        await self.state.until(
            group_id, lambda group, tasks: group["status"] == "stopped" and all(task["released"] for task in tasks)
        )


def save(directory: Path, step: int) -> None:
    work = directory / f".tmp-{step}"
    work.mkdir(parents=True)
    (work / "weights.bin").write_bytes(b"w" * 1000)
    work.rename(directory / f"step-{step}")


@pytest.fixture
async def lineage(tmp_path):
    mesh = MemoryMesh()
    host = await MemoryHost(mesh, "n1", tmp_path).start()
    async with served(tmp_path / "api", mesh) as client:
        client.app[API].extra_allowed_paths = (f"{tmp_path}/",)
        cli = Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path / "api")
        found = Lineage(client, cli, mesh, host, State(mesh, tmp_path), tmp_path)
        await found.run_parent()
        yield found
    await host.stop()


async def test_it_inherits_what_it_leaves_out_and_shows_whose_it_is(lineage):
    await lineage.stop(lineage.parent)
    status, made = await lineage.submit(hyper_params={"lr": "1e-5"})
    assert status == 201, made
    shown = await lineage.shown(made["group_id"])
    directory = f"{lineage.place}/ckpt-1"
    assert shown["parent"] == {
        "group_id": lineage.parent,
        "checkpoint_path": directory,
        "path": f"{directory}/step-20",
        "step": 20,
    }
    config = shown["config"]
    assert config["training"]["hyper_params"] == {"lr": "1e-5", "warmup": "010"}
    assert (config["training"]["keep_last_n"], config["training"]["parent_checkpoint"]) == (9, lineage.parent)
    assert config["task"] == (await lineage.shown(lineage.parent))["config"]["task"]
    assert (await lineage.shown(lineage.parent))["parent"] is None
    assert await lineage.cli("show", made["group_id"]) == 0, lineage.cli.err
    assert f"parent        {lineage.parent}, step 20: {directory}/step-20" in lineage.cli.out


async def test_its_ranks_begin_there_and_later_at_their_own(lineage):
    await lineage.stop(lineage.parent)
    file = lineage.cli.file(f"""
name: child
task_type: training
training:
  parent_checkpoint: {lineage.parent}@10
  checkpoint_path: {lineage.place}/child
""", "child.yaml")  # fmt: skip
    assert await lineage.cli("submit", file) == 0, lineage.cli.err
    group_id = lineage.cli.out.strip()
    path = f"{lineage.place}/ckpt-1/step-10"
    await lineage.state.bind(group_id, ["n1"])
    await lineage.state.until(group_id, lambda group, tasks: group["claimed"] == [0])
    assert (await lineage.state.get("group", group_id))["probe"] is None
    outcome = await lineage.mesh.propose(
        command(
            "StartGroup", group_id=group_id, attempt=1, claimed=[0], master={"addr": "127.9.7.6", "port": PORT},
            resume={"path": path, "step": 10, "source": "parent_checkpoint"},
        )
    )  # fmt: skip
    assert outcome["ok"], outcome
    await lineage.state.until(group_id, lambda group, tasks: group["status"] == "running")
    (task,) = [task for key, task in lineage.host.runtime.host.items() if key.group_id == group_id]
    assert task.spec.env["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == path
    assert ("/parent", True) in [(mount.target, mount.read_only) for mount in task.spec.mounts]
    save(lineage.place / "child", 30)
    await lineage.stop(group_id)

    async with lineage.client.post(f"{GROUPS}/{group_id}/resubmit", headers=AUTH) as response:
        again = (await response.json())["group_id"]
    assert (await lineage.shown(again))["parent"]["path"] == path
    await lineage.state.bind(again, ["n1"])
    await lineage.state.until(again, lambda group, tasks: group["claimed"] == [0])
    assert (await lineage.state.get("group", again))["probe"]["step"] == 30


async def test_a_checkpoint_that_is_gone_is_told_by_the_claim(lineage):
    _, made = await lineage.submit()
    assert [one["code"] for one in made["warnings"]].count("parent_may_vanish") == 1
    await lineage.stop(lineage.parent)
    shutil.rmtree(lineage.place / "ckpt-1" / "step-20")
    await lineage.state.bind(made["group_id"], ["n1"])
    await lineage.state.until(
        made["group_id"], lambda group, tasks: "step-20 is not there (any more)" in json.dumps(group)
    )


async def test_one_group_however_often_it_is_sent_though_the_parent_goes_on(lineage):
    status, made = await lineage.submit("k-01")
    await lineage.parent_saves(30)
    assert await lineage.submit("k-01") == (200, made) and status == 201
    assert (await lineage.shown(made["group_id"]))["parent"]["step"] == 20


async def test_what_is_no_parent_is_refused_at_its_field(lineage):
    place = lineage.place
    for training, code, words in (
        ({"parent_checkpoint": "tg-01kb89t3f89j6ct3adhq"}, "no_such_group", "there is no task group"),
        ({"parent_checkpoint": f"{lineage.parent}@15"}, "no_parent_checkpoint", "steps 20, 10."),
        ({"parent_checkpoint": f"{lineage.parent}/step-10"}, "invalid_field", "neither GROUP nor GROUP@STEP"),
        ({"checkpoint_path": f"{place}/ckpt-1"}, "parent_directory", "could not be told"),
        ({"checkpoint_path": f"{place}"}, "parent_directory", "could not be told"),
        ({"resume_from_checkpoint": f"{place}/x"}, "begins_twice", "both say where to begin"),
        ({"framework": "horovod"}, "invalid_field", "horovod"),
        ({"per_node_gpu": 2}, "shape_mismatch", "task.gpu_required is 1"),
    ):
        status, value = await lineage.submit(**training)
        assert status == 400 and value["code"] == "invalid_document", value
        assert any(one["code"] == code and words in one["message"] for one in value["findings"]), value
        assert all(one["hint"] for one in value["findings"])
    async with lineage.client.get(GROUPS, headers=AUTH) as response:
        assert [group["group_id"] for group in (await response.json())["groups"]] == [lineage.parent]


@contextlib.asynccontextmanager
async def two_tenants(tmp_path):
    """Each tenant's group has saved something."""
    async with people(tmp_path) as found:
        host = await MemoryHost(found.mesh, "n1", tmp_path).start()
        for at, tenant in enumerate(TENANTS):
            async with found.client.post(f"{GROUPS}/{found.groups[tenant]}/stop", headers=AUTH) as response:
                assert response.status == 200
            group_id = found.groups[tenant] = f"tg-{'0' * 19}{at + 1}"
            body = {"n_nodes": 1, "per_node_gpu": 1, "framework": "ddp", "checkpoint_path": f"{tmp_path}/{tenant}"}
            body = {"name": tenant, "task_type": "training", "training": body}
            body["task"] = {"command": "x", "gpu_required": 1, "stop_grace_s": 1, "env": {"API_KEY": f"of-{tenant}"}}
            fields = {"group_id": group_id, "document": body, "tenant": tenant, "user": "u", "warnings": []}
            assert (await found.mesh.propose(command("SubmitGroup", **fields, resubmit_of=None)))["ok"]
            state = State(found.mesh, tmp_path)
            await state.bind(group_id, ["n1"], port=PORT + at, card=at)
            (task,) = await state.until(group_id, lambda group, tasks: group["claimed"] == [0])
            save_report = {"kind": "checkpoint", "pick": "step-5", "step": 5, "mark": "m", "bytes": 1, "files": 1}
            ref = {name: task[name] for name in ("group_id", "attempt", "rank", "token")}
            report = {**ref, "seq": 0, **save_report, "age_ms": 1, "took_ms": 1}
            reports = command("TaskReports", node="n1", uid="uid-n1", reports=[report])
            assert (await found.mesh.propose(reports))["ok"]
        yield found
        await host.stop()


async def test_the_group_of_another_tenant_is_no_parent(tmp_path):
    async with two_tenants(tmp_path) as found:
        for who, tenant, told, status in (
            ("member.red", "red", {}, 201),
            ("member.red", "blue", {}, 400),
            ("operator.red", "blue", {"tenant": "red"}, 400),
            ("operator.red", "blue", {}, 201),
        ):
            training = {"parent_checkpoint": found.groups[tenant], "checkpoint_path": f"/data/{who}.{tenant}"}
            body = {"name": "child", "task_type": "training", "training": training, **told}
            async with found.client.post(GROUPS, json=body, headers=found.auth(who)) as response:
                value = await response.json()
                assert response.status == status, (who, tenant, value)
            if status == 201:
                shown = await found.get(f"{GROUPS}/{value['group_id']}", f"member.{tenant}")
                assert (shown["tenant"], shown["config"]["task"]["env"]) == (tenant, {"API_KEY": f"of-{tenant}"})
        nobody = {**body, "training": {**training, "parent_checkpoint": "tg-01kb89t3f89j6ct3adhq"}}
        answers = []
        for named in (found.groups["blue"], "tg-01kb89t3f89j6ct3adhq"):
            nobody["training"]["parent_checkpoint"] = named
            async with found.client.post(GROUPS, json=nobody, headers=found.auth("member.red")) as response:
                answers.append((response.status, (await response.text()).replace(named, "GROUP")))
        assert answers[0] == answers[1]
