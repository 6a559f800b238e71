"""What a trainer saves becomes lines of the ledger: the real look at the disk, the state, HTTP and the command line."""

import asyncio
import contextlib
import json
import os
import shutil
import threading

import pytest

from agentd.checkpoints.watch import CheckpointWatch
from mesh.memory import MemoryMesh
from tests.integration.memory_hosts import MemoryHost, State
from tests.integration.served_api import AUTH, served
from tests.integration.test_cli import Cli


class Gang:
    """One group on one host, its directory, and the watch, whose looks are taken by hand or by its own loop."""

    def __init__(self, mesh, host, state, directory):
        self.mesh, self.host, self.state, self.directory = mesh, host, state, directory
        self.group_id = ""
        self.watch = self.new_watch()

    def new_watch(self, every_s=0.02):
        roots = (str(self.directory),)
        return CheckpointWatch(self.mesh, self.host.feed, "n1", "uid-n1", roots, every_s=every_s)

    @property
    def place(self):
        return self.directory / f"ckpt-{self.state.groups}"

    async def run(self, **training):
        self.group_id = await self.state.submit(**training)
        await self.go_on()

    async def go_on(self, attempt=1):
        await self.state.bind(self.group_id, ["n1"], attempt)
        await self.state.until(self.group_id, lambda group, tasks: group["claimed"] == [0])
        await self.state.start(self.group_id, attempt)
        await self.state.until(self.group_id, lambda group, tasks: group["status"] == "running")

    def save(self, step, whole=True):
        work = self.place / f".tmp-{step}"
        work.mkdir(parents=True)
        (work / "weights.bin").write_bytes(b"w" * 1000)
        if whole:
            (work / "meta.json").write_text(json.dumps({"step": step}))
            shutil.rmtree(self.place / f"step-{step}", ignore_errors=True)
            work.rename(self.place / f"step-{step}")

    async def ledger(self):
        found = (await self.mesh.query([{"scan": ["save", f"{self.group_id}/", "", 1000]}]))["results"][0]
        return [row for _, row in found]

    async def until(self, want, within_s=10.0):
        """Takes looks until the ledger is as wanted."""
        async with asyncio.timeout(within_s):
            while True:
                await self.watch.turn()
                rows = await self.ledger()
                with contextlib.suppress(IndexError):
                    if want(rows):
                        return rows
                await asyncio.sleep(0.02)


@pytest.fixture
async def gang(tmp_path):
    mesh = MemoryMesh()
    host = await MemoryHost(mesh, "n1", tmp_path).start()
    yield Gang(mesh, host, State(mesh, tmp_path), tmp_path)
    await host.stop()


async def test_each_save_is_told_once(gang):
    await gang.run()
    gang.save(10)
    (first,) = await gang.until(lambda rows: len(rows) == 1)
    assert (first["pick"], first["step"], first["attempt"], first["complete"]) == ("step-10", 10, 1, True)
    assert first["bytes"] == 1000 + len('{"step": 10}') and first["files"] == 2
    before = (await gang.mesh.query([{"get": ["group", gang.group_id]}]))["idx"]
    for _ in range(5):
        await gang.watch.turn()
    assert (await gang.mesh.query([{"get": ["group", gang.group_id]}]))["idx"] == before, "nothing new, nothing said"
    gang.watch = gang.new_watch()  # an agent that was started again
    gang.save(20, whole=False)
    await gang.watch.turn()
    gang.save(30)
    rows = await gang.until(lambda rows: rows[-1]["step"] == 30)
    assert [row["step"] for row in rows] == [10, 30]


async def test_a_slow_mesh_makes_no_look_late(gang):
    """Only what a look takes of the disk is rationed."""
    now_s = [0.0]

    class SlowMesh:
        async def propose(self, *words, **options):
            now_s[0] += 10.0
            return await gang.mesh.propose(*words, **options)

    roots = (str(gang.directory),)
    gang.watch = CheckpointWatch(SlowMesh(), gang.host.feed, "n1", "uid-n1", roots, every_s=2.0, clock=lambda: now_s[0])
    await gang.run()
    gang.save(10)
    await gang.until(lambda rows: len(rows) == 1)
    gang.save(20)
    now_s[0] += 2.0
    await gang.watch.turn()
    assert [row["step"] for row in await gang.ledger()] == [10, 20]


async def test_what_it_resumed_from_is_not_its_own(gang):
    (gang.directory / "ckpt-1").mkdir()
    gang.state.groups = 1
    gang.save(7)
    gang.state.groups = 0
    await gang.run()
    (row,) = await gang.until(lambda rows: rows and rows[0]["bytes"])
    assert (row["pick"], row["attempt"], row["restores"]) == ("step-7", 0, [1])
    gang.save(8)
    await gang.until(lambda rows: [row["attempt"] for row in rows] == [0, 1])


async def test_the_last_one_is_seen_although_the_rank_has_ended(gang):
    await gang.run()
    await gang.watch.turn()
    gang.save(99)
    await gang.mesh.propose({"v": 1, "t": "StopGroup", "group_id": gang.group_id, "by": "t"})
    await gang.state.until(gang.group_id, lambda group, tasks: group["status"] == "stopped")
    rows = await gang.until(lambda rows: rows)
    assert rows[0]["step"] == 99
    await gang.watch.turn()
    assert not gang.watch._watched


async def test_a_directory_that_leads_out_is_not_looked_at(gang, tmp_path_factory):
    await gang.run()
    outside = tmp_path_factory.mktemp("outside")
    (outside / "step-5").mkdir()
    (outside / "step-5" / "weights.bin").write_bytes(b"w")
    gang.place.rename(gang.directory / "moved")
    gang.place.symlink_to(outside)
    for _ in range(3):
        await gang.watch.turn()
    assert await gang.ledger() == []


async def test_a_share_that_hangs_holds_nothing_up(gang, monkeypatch):
    """The look is left behind; it is not begun anew while it hangs."""
    await gang.run()
    hangs, begun = threading.Event(), []

    def look(*_):
        begun.append(1)
        hangs.wait(30)

    monkeypatch.setattr("agentd.checkpoints.watch._LOOK_DEADLINE_S", 0.05)
    monkeypatch.setattr(gang.watch, "_newest", look)
    for _ in range(4):
        await gang.watch.turn()
    assert len(begun) == 1
    hangs.set()


async def test_a_stop_after_the_next_checkpoint_over_http_and_the_command_line(gang, tmp_path):
    await gang.run()
    gang.save(10)
    await gang.until(lambda rows: len(rows) == 1)
    work = asyncio.create_task(gang.watch.run())
    async with served(tmp_path / "api", gang.mesh) as client:
        cli = Cli(gang.mesh, f"127.0.0.1:{client.server.port}", tmp_path / "api")
        assert await cli("checkpoint", "ls", gang.group_id) == 0, cli.err
        assert "step-10" in cli.out and "GPU-hours lost if killed now" in cli.out
        assert await cli("show", gang.group_id) == 0
        assert "last saved    step-10, 1012 B, " in cli.out and "at risk       0.00 GPU-hours" in cli.out
        assert await cli("stop", gang.group_id, "--after-checkpoint", "--within", "600") == 0, cli.err
        assert f"{gang.group_id} running until its next checkpoint, or 20" in cli.out
        assert await cli("show", gang.group_id) == 0 and "stops         after its next checkpoint" in cli.out
        await asyncio.sleep(0.1)  # looks that find nothing new stop nothing
        assert (await gang.state.get("group", gang.group_id))["status"] == "running"
        gang.save(20)
        await gang.state.until(gang.group_id, lambda group, tasks: group["status"] == "stopped", within_s=15)
        async with client.get(f"/api/v1/task-groups/{gang.group_id}/checkpoints", headers=AUTH) as response:
            found = await response.json()
        newest, first = found["checkpoints"]
        assert (newest["step"], first["step"], found["at_risk"]) == (20, 10, None)
        assert newest["after_s"] >= 0 and newest["took_s"] >= 0 and newest["saved_at"].endswith("Z")
        assert await cli("stop", gang.group_id, "--after-checkpoint", "-o", "json") == 0
        assert json.loads(cli.out)["status"] == "stopped"
        for body, code in (({"within_s": 0}, "invalid_parameter"), ({"now": 1}, "unknown_field")):
            path = f"/api/v1/task-groups/{gang.group_id}/stop-after-checkpoint"
            async with client.post(path, json=body, headers=AUTH) as response:
                assert (response.status, (await response.json())["code"]) == (400, code)
    work.cancel()


async def test_the_last_n_are_kept_and_what_was_removed_is_told(gang):
    lease = [False]
    roots = (str(gang.directory),)
    gang.watch = CheckpointWatch(
        gang.mesh, gang.host.feed, "n1", "uid-n1", roots, every_s=0.02, may_remove=lambda: lease[0]
    )
    await gang.run(keep_last_n=2)
    for step in range(1, 6):
        gang.save(step)
        await gang.until(lambda rows, step=step: rows and rows[-1]["step"] == step)
    assert len([*gang.place.glob("step-*")]) == 5, "a host without its lease removes nothing"
    lease[0] = True
    rows = await gang.until(lambda rows: rows[2]["removed_ms"])
    assert [row["removed_ms"] is not None for row in rows] == [True, True, True, False, False]
    assert sorted(path.name for path in gang.place.glob("step-*")) == ["step-4", "step-5"]
    gang.save(6)
    await gang.until(lambda rows: rows[3]["removed_ms"])
    before = (await gang.mesh.query([{"get": ["group", gang.group_id]}]))["idx"]
    for _ in range(5):
        await gang.watch.turn()
    assert (await gang.mesh.query([{"get": ["group", gang.group_id]}]))["idx"] == before, "said once"


async def test_without_keep_last_n_nothing_is_removed(gang):
    await gang.run()
    for step in range(1, 6):
        gang.save(step)
    await gang.until(lambda rows: rows and rows[-1]["step"] == 5)
    await gang.watch.turn()
    assert len([*gang.place.glob("step-*")]) == 5 and not (gang.place / ".heteroflow").exists()


async def test_what_a_resume_passed_over_is_told(gang, tmp_path):
    """One attempt saves 10 and dies in the middle of 20; the next one is told why not 20."""
    await gang.run()
    gang.save(10)
    await gang.until(lambda rows: len(rows) == 1)
    (gang.place / "step-20").mkdir()
    (gang.place / "step-20" / "weights.bin").write_bytes(b"")
    await gang.mesh.propose({"v": 1, "t": "ExpireNode", "node_id": "n1", "uid": "uid-n1", "text": "silent"})
    await gang.state.until(gang.group_id, lambda group, tasks: group["status"] == "pending")
    async with asyncio.timeout(10):
        while (await gang.state.get("node", "n1"))["state"] != "ready":  # noqa: ASYNC110 - only the mesh can tell
            await asyncio.sleep(0.02)
    await gang.go_on(attempt=2)
    rows = await gang.ledger()
    assert [(row["pick"], row["complete"], row["restores"]) for row in rows] == [
        ("step-10", True, [2]),
        ("step-20", False, []),
    ]
    assert "weights.bin is empty" in rows[1]["why"]
    async with served(tmp_path / "api", gang.mesh) as client:
        async with client.get(f"/api/v1/task-groups/{gang.group_id}/checkpoints", headers=AUTH) as response:
            told = (await response.json())["checkpoints"]
        assert [one["complete"] for one in told] == [False, True]
        assert told[1]["restores"] == [{"attempt": 2, "result": "under_way"}]
        gang.save(30)
        await gang.until(lambda rows: rows[-1]["step"] == 30)
        async with client.get(f"/api/v1/task-groups/{gang.group_id}/checkpoints", headers=AUTH) as response:
            told = (await response.json())["checkpoints"]
        assert told[-1]["restores"] == [{"attempt": 2, "result": "went_on"}]
        events = f"/api/v1/task-groups/{gang.group_id}/fault-events"
        async with client.get(events, headers=AUTH) as response:
            texts = [event["text"] for event in (await response.json())["events"] if event["kind"] == "starting"]
    assert f"from checkpoint {gang.place}/step-10." in texts[-1] and "step-20: weights.bin is empty" in texts[-1]
    assert os.path.isdir(gang.place / "step-20"), "nothing is deleted"
