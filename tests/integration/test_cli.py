"""The verbs of `heteroflow` against the real API on an in-process mesh: what people and programs read, exit codes."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from console.cli.main import run
from console.cli.terminal import Terminal
from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.served_api import TOKEN, document, served
from tests.waiting import eventually

HOSTILE = "x\x1b]0;HACKED\x07\x1b[2J\u202e"


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class Cli:
    def __init__(self, mesh: MemoryMesh, address: str, tmp_path: Any) -> None:
        self.mesh, self.address, self.dir = mesh, address, tmp_path
        self.out = self.err = ""

    async def __call__(self, *words: str, tty: bool = False, env: dict[str, str] | None = None) -> int:
        out, err = Tty() if tty else io.StringIO(), io.StringIO()
        environment = {"HOME": str(self.dir), "HETEROFLOW_TOKEN": TOKEN, "HETEROFLOW_NODES": self.address} | (env or {})
        code = await asyncio.to_thread(run, words, Terminal(out, err, environment))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def file(self, value: Any, name: str = "job.json") -> str:
        path = self.dir / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    async def submit(self, *words: str, **over: Any) -> str:
        assert await self("submit", self.file(document(**over)), *words) == 0, self.err
        return self.out.strip()

    async def do(self, name: str, **fields: Any) -> None:
        outcome = await self.mesh.propose(command(name, **fields))
        assert outcome["ok"], outcome

    async def join(self, node: str = "n1", reason: str = "x") -> None:
        gpus = [{"uuid": f"GPU-{node}-{at}", "type": "H100", "memory_mb": 80_000, "index": at} for at in range(2)]
        await self.do(
            "RegisterNode",
            node_id=node,
            uid="uid1",
            api_addr=self.address,
            voter_addr=None,
            gpus=gpus,
            gpu_backend="simulated",
            runtime="memory",
            labels={},
            version="0.1.0",
            cpus=8,
            memory_mb=64_000,
        )

    async def run_group(self, group_id: str, exit_code: int | None = None) -> dict[str, Any]:
        """Through the same commands as controllers and agents send; ended where an exit code is given. What a report
        of its rank begins with."""
        cards = ["GPU-n1-0", "GPU-n1-1"]
        placement = {"rank": 0, "node": "n1", "gpus": cards, "port": 20_001}
        bind = await self.mesh.propose(command("BindGroup", group_id=group_id, attempt=1, placements=[placement]))
        assert bind["ok"], bind
        report = {"group_id": group_id, "attempt": 1, "rank": 0, "token": bind["idx"]}

        async def tell(seq: int, kind: str, **fields: Any) -> None:
            await self.do("TaskReports", node="n1", uid="uid1", reports=[report | {"seq": seq, "kind": kind} | fields])

        await tell(1, "claimed", resume=None)
        start = {"claimed": [0], "master": {"addr": "127.0.0.1", "port": 20_001}, "resume": None}
        await self.do("StartGroup", group_id=group_id, attempt=1, **start)
        await tell(2, "started")
        if exit_code is not None:
            await tell(3, "exited", exit_code=exit_code, signal=None, at_ms=1)
            await tell(4, "released")
        return report

    async def exits(self, report: dict[str, Any], exit_code: int = 0) -> None:
        said = {"seq": 3, "kind": "exited", "exit_code": exit_code, "signal": None, "at_ms": 1}
        await self.do("TaskReports", node="n1", uid="uid1", reports=[report | said])


@pytest.fixture
async def cli(tmp_path) -> AsyncIterator[Cli]:
    mesh = MemoryMesh()
    async with served(tmp_path, mesh) as client:
        yield Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path)


class TestSubmit:
    async def test_the_id_alone_goes_to_stdout(self, cli):
        group_id = await cli.submit()
        assert group_id.startswith("tg-")
        assert cli.err == ""

    async def test_yaml_keeps_what_was_typed(self, cli):
        text = """
name: 2026-01-01
task_type: training
training: {framework: ddp, launcher: script, n_nodes: 1, per_node_gpu: 2, hyper_params: {lr: 1e-4, amp: on, seed: 0755}}
task: {command: [python, t.py, --steps, 100], gpu_required: 2}
"""
        assert await cli("submit", cli.file(text, "job.yaml"), "--set", "training.hyper_params.warm.up=5e6") == 0
        assert "warning: without checkpoint_path" in cli.err
        assert await cli("show", cli.out.strip(), "-o", "json") == 0
        config = json.loads(cli.out)["config"]
        assert config["name"] == "2026-01-01"
        assert config["training"]["hyper_params"] == {"lr": "1e-4", "amp": "on", "seed": "0755", "warm.up": "5e6"}
        assert config["task"]["command"] == ["python", "t.py", "--steps", "100"]

    async def test_every_finding_is_printed_and_nothing_created(self, cli):
        bad = document() | {"image": "i", "name": ""}
        bad["training"] |= {"num_nodes": 2, "n_nodes": -1}
        assert await cli("submit", cli.file(bad)) == 2
        assert cli.out == ""
        for said in (
            "was not created",
            "training.num_nodes",
            "did you mean n_nodes",
            "task.image",
            "name is empty",
            "-1, outside 1",
        ):
            assert said in cli.err
        await cli("ls", "-o", "json")
        assert json.loads(cli.out) == {"groups": []}

    @pytest.mark.parametrize(
        ("name", "text", "said"),
        [
            ("a.yaml", "a: 1\n\tb: 2\n", "line 2"),
            ("a.yaml", "a: 1\na: 2\n", "stands twice"),
            ("a.json", '{"a": 1,}', "comma before a closing bracket"),
            ("a.json", '{"a": NaN}', "NaN is no JSON number"),
            ("a", '{"a": 1,}', "comma before a closing bracket"),
            ("a.yaml", "x" * 300_000, "at most"),
            ("a.yaml", "", "empty"),
            ("a.yaml", "just text", "must be a mapping"),
        ],
    )
    async def test_what_is_no_document_is_refused_with_its_place(self, cli, name, text, said):
        assert await cli("submit", cli.file(text, name)) == 2
        assert said in cli.err

    async def test_a_missing_file(self, cli):
        assert await cli("submit", "/no/such/file") == 2
        assert "No such file" in cli.err

    @pytest.mark.parametrize("assignment", ["x", "=1", "name.x=1", "a..b=1"])
    async def test_assignments_that_are_none(self, cli, assignment):
        assert await cli("submit", cli.file(document()), "--set", assignment) == 2
        assert "--set" in cli.err

    async def test_the_same_request_id_makes_one_group(self, cli):
        first = await cli.submit("--request-id", "k-1")
        assert await cli.submit("--request-id", "k-1") == first
        assert await cli("submit", cli.file(document("other")), "--request-id", "k-1") == 5
        assert "k-1" in cli.err or "request" in cli.err

    @pytest.mark.parametrize(("exit_code", "code"), [(0, 0), (3, 1)])
    async def test_wait_exits_by_the_result(self, cli, exit_code, code):
        await cli.join()
        waiting = asyncio.create_task(cli("submit", cli.file(document()), "--wait"))
        await cli.run_group(await self.newest(cli), exit_code)
        assert await waiting == code
        assert ("completed" if code == 0 else "failed") in cli.err

    async def test_wait_tells_a_stopped_group_from_a_failed_one(self, cli):
        waiting = asyncio.create_task(cli("submit", cli.file(document()), "--wait"))
        await cli.do("StopGroup", group_id=await self.newest(cli), by="ada")
        assert await waiting == 6

    async def newest(self, cli) -> str:
        async with asyncio.timeout(10):
            while True:
                found = await cli.mesh.query([{"scan": ["group", "", "", 1]}])
                if found["results"][0]:
                    return str(found["results"][0][0][0])
                await asyncio.sleep(0.01)


class TestReading:
    async def test_ls(self, cli):
        await cli.join()
        running, failed = await cli.submit(name="run it"), None
        await cli.run_group(running, exit_code=7)
        failed = running
        waiting = await cli.submit(name="训练-2")
        reason = {"code": "insufficient_gpus", "text": "needs 1 node x 2 GPUs: 0 of 1 nodes pass", "details": {}}
        await cli.do("SetReasons", reasons={waiting: reason})
        assert await cli("ls") == 0
        head, first, second = cli.out.splitlines()
        assert head.split() == ["NAME", "STATUS", "GPU", "NODES", "AGE", "RUN", "ID", "WHY"]
        assert "Q pending" in first and waiting in first and "0 of 1 nodes pass" in first and "训练-2" in first
        assert "F failed" in second and failed in second and "n1" in second
        assert await cli("ls", "--status", "failed", "-o", "json") == 0
        assert [group["group_id"] for group in json.loads(cli.out)["groups"]] == [failed]
        assert await cli("ls", "--limit", "1") == 0
        assert len(cli.out.splitlines()) == 2 and "more than 1" in cli.err
        assert await cli("ls", "--status", "runing") == 2
        assert "runing" in cli.err

    async def test_empty_lists_say_so(self, cli):
        for verb, said in (("ls", "no task group"), ("nodes", "no node"), ("queue", "nothing waits")):
            assert await cli(verb) == 0
            assert cli.out == "" and said in cli.err

    async def test_show_why_and_events_of_a_failure(self, cli):
        await cli.join()
        group_id = await cli.submit()
        await cli.run_group(group_id, exit_code=7)
        assert await cli("show", "ft-a") == 0
        for said in (group_id, "F failed", "1 node x 2 cards", "python train.py", "exited", "/data/ckpt/ft-a"):
            assert said in cli.out
        assert await cli("why", group_id) == 0
        for said in ("ft-a is failed", "rank 0", f"heteroflow logs {group_id} --rank 0", "last events"):
            assert said in cli.out
        assert await cli("events", group_id) == 0
        kinds = [line.split()[5] for line in cli.out.splitlines()[1:]]
        assert kinds[0] == "submitted" and kinds[-1] == "failed" and "root_failure" in kinds
        assert await cli("events", group_id, "-o", "json") == 0
        assert json.loads(cli.out)["events"][0]["kind"] == "submitted"

    async def test_ranks_that_did_not_meet(self, cli):
        await cli.join()
        group_id = await cli.submit()
        await cli.run_group(group_id)
        said = "missing: rank 1 (n2) never connected to 10.0.0.1:20000"
        await cli.do("RecordRendezvous", group_id=group_id, attempt=1, state="missing", text=said)
        assert await cli("show", group_id) == 0 and f"missing: {said}" in cli.out
        assert await cli("why", group_id) == 0
        assert f"have not become one world: {said}." in cli.out and "Nothing is stopped" in cli.out
        assert await cli("why", group_id, "-o", "json") == 0
        assert json.loads(cli.out)["rendezvous"]["state"] == "missing"
        await cli.do("RecordRendezvous", group_id=group_id, attempt=1, state="formed", text="one world of 2 nodes")
        assert await cli("why", group_id) == 0 and "not become" not in cli.out

    async def test_whom_a_group_that_ends_waits_for(self, cli):
        await cli.join()
        group_id = await cli.submit()
        report = await cli.run_group(group_id)
        assert await cli("why", group_id) == 0 and "yet:" not in cli.out
        assert await cli("stop", group_id) == 0
        assert await cli("why", group_id) == 0 and "Not gone yet: rank 0 on n1." in cli.out
        ended = report | {"kind": "exited", "seq": 4, "exit_code": None, "signal": 15, "at_ms": 1, "why": "stopped"}
        await cli.do("TaskReports", node="n1", uid="uid1", reports=[ended])
        assert await cli("why", group_id) == 0 and "yet:" not in cli.out

    async def test_why_a_group_waits(self, cli):
        first, group_id = await cli.submit(name="first"), await cli.submit(name="second")
        reason = {
            "code": "insufficient_gpus",
            "text": "0 of 9 nodes pass",
            "details": {"refused": {"busy": 4}, "types": []},
        }
        await cli.do("SetReasons", reasons={group_id: reason})
        assert await cli("why", "second") == 0
        for said in ("second is pending", "0 of 9 nodes pass", "refused: busy 4", "number 2 in the queue"):
            assert said in cli.out
        assert "types" not in cli.out
        assert await cli("why", first, "-o", "json") == 0
        assert json.loads(cli.out)["position"] == 1

    async def test_nodes_and_queue(self, cli):
        await cli.join()
        await cli.run_group(await cli.submit())
        await cli.submit(name="next")
        assert await cli("nodes") == 0
        assert cli.out.splitlines()[1].split()[:6] == ["n1", "ready", "–", "0", "2", "H100"]
        assert "(simulated)" in cli.out
        await cli.do("ExpireNode", node_id="n1", uid="uid1", text="no lease renewal for 15.0 s")
        assert await cli("nodes") == 0
        assert "lost" in cli.out and "no lease renewal" in cli.out
        assert await cli("queue") == 0
        assert "next" in cli.out and "1x2" in cli.out

    async def test_names_are_matched_whole_and_never_guessed(self, cli):
        first = await cli.submit(name="job1")
        await cli.submit(name="job10")
        assert await cli("show", "job1") == 0 and first in cli.out
        assert await cli("show", "job") == 3
        assert await cli("show", first[:-1]) == 3
        await cli("stop", first)
        assert await cli("resubmit", "job1") == 0
        again = cli.out.strip()
        assert await cli("show", "job1") == 2
        assert first in cli.err and again in cli.err and "X stopped" in cli.err

    async def test_unknown_group_on_every_verb(self, cli):
        for verb in ("show", "why", "events", "logs", "stop", "resubmit", "watch"):
            for reference in ("nope", "tg-00000000000000000000"):
                async with asyncio.timeout(20):
                    assert await cli(verb, reference) == 3, (verb, reference)
                assert reference in cli.err


class TestWriting:
    async def test_stop_names_all_before_it_stops_one(self, cli):
        first = await cli.submit(name="a")
        assert await cli("stop", first, "typo") == 3
        await cli("show", first, "-o", "json")
        assert json.loads(cli.out)["status"] == "pending"
        assert await cli("stop", first, "--wait") == 0
        assert cli.out == f"{first} stopped\n" and f"{first} stopped in attempt 0" in cli.err

    async def test_stopping_what_has_ended_is_told_apart(self, cli):
        await cli.join()
        group_id = await cli.submit()
        await cli.run_group(group_id, exit_code=0)
        assert await cli("stop", group_id) == 5
        assert "completed" in cli.err

    async def test_pause_waits_until_every_rank_has_saved_and_resume_gives_the_place_back(self, cli):
        await cli.join()
        group_id = await cli.submit()
        assert await cli("pause", group_id) == 5
        assert "is pending" in cli.err and "once it runs" in cli.err
        report = await cli.run_group(group_id)
        assert await cli("pause", group_id) == 0
        assert cli.out == f"{group_id} pausing\n"
        waiting = asyncio.create_task(Cli(cli.mesh, cli.address, cli.dir)("pause", group_id, "--wait"))
        assert await cli("resume", group_id) == 5
        assert "still saving" in cli.err
        await cli.exits(report)
        assert await waiting == 0
        assert await cli("why", group_id) == 0
        assert f"heteroflow resume {group_id}" in cli.out
        assert await cli("resume", group_id, "-o", "json") == 0
        assert json.loads(cli.out) == {"group_id": group_id, "status": "pending"}
        await cli("events", group_id)
        assert all(f"{word} by" in cli.out for word in ("Pause asked", "Resumed"))

    async def test_a_pause_that_ends_in_a_stop_is_told(self, cli):
        await cli.join()
        group_id = await cli.submit()
        report = await cli.run_group(group_id)
        assert await cli("pause", group_id) == 0
        assert await cli("stop", group_id) == 0
        await cli.exits(report)
        other = await cli.submit(name="other")
        assert await cli("resume", other, group_id) == 5
        assert "not paused" in cli.err
        assert await cli("pause", group_id, "--wait") == 5
        assert "is stopped" in cli.err

    async def test_resubmit_refuses_an_active_group(self, cli):
        group_id = await cli.submit()
        assert await cli("resubmit", group_id) == 5
        assert "pending" in cli.err


class TestWatch:
    async def test_changes_as_lines_and_as_json_with_a_token_to_go_on_from(self, cli, monkeypatch):
        group_id = await cli.submit()
        lines: list[str] = []

        class Until(io.StringIO):
            def write(self, text: str) -> int:
                lines.append(text)
                if "stopped" in "".join(lines):
                    raise KeyboardInterrupt
                return len(text)

        environment = {"HOME": "/", "HETEROFLOW_TOKEN": TOKEN, "HETEROFLOW_NODES": cli.address}
        for words in (("watch", group_id), ("watch", group_id, "-o", "json")):
            lines.clear()
            watching = asyncio.create_task(
                asyncio.to_thread(self.interrupted, words, Terminal(Until(), io.StringIO(), environment))
            )
            async with asyncio.timeout(10):
                await eventually("a line", lambda: lines)
                with contextlib.suppress(AssertionError):
                    await cli.do("StopGroup", group_id=group_id, by="ada")
                await watching
        assert json.loads(lines[-1])["token"]

    def interrupted(self, words, terminal) -> None:
        with pytest.raises(KeyboardInterrupt):
            run(words, terminal)


class TestTerminal:
    @pytest.mark.attack(48)
    async def test_hostile_texts_never_reach_it(self, cli):
        await cli.join()
        group_id = await cli.submit()
        await cli.run_group(group_id)
        await cli.do("ExpireNode", node_id="n1", uid="uid1", text=HOSTILE)
        await cli.do("SetReasons", reasons={})
        for words in (("ls",), ("show", group_id), ("why", group_id), ("events", group_id), ("nodes",), ("queue",)):
            for output in ("table", "json"):
                assert await cli(*words, "-o", output, tty=True) == 0
                text = cli.out + cli.err
                assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
        await cli("nodes", "-o", "json")
        assert json.loads(cli.out)["nodes"][0]["reason"] == HOSTILE

    @pytest.mark.attack(34)
    async def test_no_secret_is_printed(self, cli):
        group_id = await cli.submit()
        for words in (("show", group_id, "-o", "json"), ("ls",), ("logs", "nope")):
            await cli(*words)
            assert TOKEN not in cli.out + cli.err

    async def test_a_wrong_token(self, cli):
        assert await cli("ls", env={"HETEROFLOW_TOKEN": "wrong"}) == 5
        assert "token" in cli.err and "wrong" not in cli.err.replace("missing or wrong", "")

    async def test_a_dead_node_beside_a_living_one(self, cli):
        assert await cli("ls", "--node", "127.0.0.1:1", "--node", cli.address) == 0

    async def test_only_dead_nodes(self, cli):
        assert await cli("--node", "127.0.0.1:1", "ls") == 4
        assert "127.0.0.1:1: connection refused" in cli.err
        assert "heteroflow-agentd" in cli.err
