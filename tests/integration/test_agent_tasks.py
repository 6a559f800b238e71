"""A mesh of three on real processes: what a task gets, how it ends, and what its agent's death does not change."""

import asyncio
import contextlib
import json
import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest

from console.core.rendered_rank import render
from schemas.task_group import check_task_group
from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CANARY = "canary-4711"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    os.environ["HF_TEST_CANARY"] = CANARY
    running = RunningMesh(tmp_path_factory.mktemp("mesh"), n=3)
    running.start()
    del os.environ["HF_TEST_CANARY"]
    yield running
    running.stop()


async def test_a_task_s_world(mesh):
    """Its environment is the platform's and the user's, not the agent's; it starts in a directory of its own."""
    group = shell_group("env", mesh.directory, "env; pwd; ls -a", hyper_params={"lr": "1e-4"})
    group["task"]["env"] = {"GREETING": "ni hao"}
    group_id = await mesh.submit(group)
    done = await mesh.status(group_id, "completed", "failed")
    assert done["status"] == "completed", done
    lines = await mesh.lines(group_id, node=3, rank=1)
    env = dict(line["text"].split("=", 1) for line in lines if "=" in line["text"])
    assert env["NODE_RANK"] == "1" and env["NNODES"] == "2" and env["WORLD_SIZE"] == "2"
    assert env["MASTER_ADDR"].startswith("127.") and 20_000 <= int(env["MASTER_PORT"]) <= 29_999
    assert env["HETEROFLOW_HP_LR"] == "1e-4" and env["GREETING"] == "ni hao" and "RANK" not in env
    assert env["HETEROFLOW_CHECKPOINT_PATH"] == group["training"]["checkpoint_path"]
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["HETEROFLOW_GPUS"].startswith("SIM-")
    everything = "\n".join(line["text"] for line in lines)
    assert CANARY not in everything and mesh.token not in everything
    assert f"/tasks/{group_id}/1/1/work" in everything


async def test_a_rank_is_started_with_what_render_says(mesh):
    """Variables, command, directory and files, once the placeholders are filled in with the placement."""
    command = 'env -0 | tr "\\n\\0" " \\n"; echo "PWD is $(pwd)"; echo FILES; '
    command += 'cat "$HETEROFLOW_DEEPSPEED_CONFIG" "$HETEROFLOW_HOSTFILE"'
    document = shell_group("render", mesh.directory, command, framework="deepspeed", launcher="script")
    document["training"]["hyper_params"] = {
        "zero_stage": "2",
        "micro_batch_size": "3",
        "note": "a  b\tc 'd' \"e\" $HOME",
    }
    group_id = await mesh.submit(document)
    done = await mesh.status(group_id, "completed", "failed")
    checked = check_task_group(document, [f"{mesh.directory}/"]).document
    assert checked is not None
    for rank, task in enumerate(done["tasks"]):
        task_dir = str(mesh.directory / done["nodes"][rank] / "tasks" / group_id / "1" / str(rank))
        user = pwd.getpwuid(os.getuid())
        placed = {
            "<group id>": group_id,
            "<attempt>": "1",
            "<address of rank 0's node>": done["master"]["addr"],
            "<port of rank 0>": str(done["master"]["port"]),
            "<directory of the task on its node>": task_dir,
            "<user of the agent>": user.pw_name,
            "<interface of the node>": "lo",
            "<home of that user>": user.pw_dir,
            f"<card 0 of rank {rank}>": task["gpus"][0],
        }
        told = json.dumps(render(checked, rank).to_dict())
        for name, value in placed.items():
            told = told.replace(name, value)
        said = json.loads(told)
        # Simulated cards are not shown to programs, and no checkpoint was found.
        said["env"] |= {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        del said["env"]["HETEROFLOW_RESUME_FROM_CHECKPOINT"]
        lines = [line["text"] for line in await mesh.lines(group_id, rank=rank)]
        at = lines.index("FILES")
        env = dict(line.split("=", 1) for line in lines[: at - 1])
        shell = {"PWD", "OLDPWD", "SHLVL", "_"}
        assert {name: value for name, value in env.items() if name not in shell} == said["env"]
        assert lines[at - 1] == f"PWD is {said['cwd']}"
        assert said["argv"] == ["/bin/sh", "-c", command]
        files = "".join(said["files"].values()).splitlines()
        assert lines[at + 1 : at + 1 + len(files)] == files


async def test_values_of_any_kind_and_size_arrive_byte_for_byte(mesh):
    """In list form, and more of them than the environment takes twice."""
    values = {
        "inj": "$(id) `id` $HOME",
        "quotes": "a b'c\"d\\",
        "lines": "x\ny\tz\r",
        "eq": "a=b",
        "empty": "",
        "é": "ü😀",
    }
    values = {(name if name.isascii() else "unicode"): text for name, text in values.items()}
    values |= {f"long{at}": "xyz " * 1000 for at in range(30)}
    program = (
        "import json, os\n"
        "said = {name: text for name, text in os.environ.items() if name.startswith('HETEROFLOW_HP_')}\n"
        "place = os.environ['HETEROFLOW_CHECKPOINT_PATH'] + '/seen-' + os.environ['NODE_RANK']\n"
        "file = open(os.environ['HETEROFLOW_HYPER_PARAMS_FILE']).read()\n"
        "open(place, 'w').write(json.dumps([said, json.loads(file), 'HETEROFLOW_HYPER_PARAMS' in os.environ]))\n"
    )
    document = shell_group("bytes", mesh.directory, "", hyper_params=values)
    document["task"]["command"] = ["python3", "-c", program, "a b", "$HOME"]
    group_id = await mesh.submit(document)
    done = await mesh.status(group_id, "completed", "failed")
    assert done["status"] == "completed", done
    for rank in (0, 1):
        seen = json.loads((mesh.directory / "checkpoints" / "bytes" / f"seen-{rank}").read_text())
        assert seen == [{f"HETEROFLOW_HP_{name.upper()}": text for name, text in values.items()}, values, False]


async def test_what_a_task_reports_is_told_through_any_node(mesh):
    program = (
        "import time, heteroflow_report as report\n"
        "report.phase('train')\n"
        "for step in range(1, 10_000):\n"
        "    report.step(step, loss=1 / step, lr=1e-4, epoch=0.5, tokens_per_s=51_000)\n"
        "    time.sleep(0.05)\n"
    )
    document = shell_group("reports", mesh.directory, "")
    document["task"]["command"] = ["python3", "-c", program]
    group_id = await mesh.submit(document)
    await mesh.status(group_id, "running")

    async def told():
        answer = await mesh.nodes[2].call("GET", f"/telemetry?group={group_id}")
        return next((now for now in answer.value["groups"] if ((now["report"] or {}).get("step") or 0) > 20), None)

    now = await eventually("a report", told)
    report = now["report"]
    assert (report["phase"], report["lr"], report["epoch"]) == ("train", 1e-4, 0.5)
    assert report["metrics"] == {"tokens_per_s": 51_000} and report["age_s"] < 10
    assert now["step"] == report["step"] and now["loss"] == report["loss"] == 1 / report["step"]
    await mesh.nodes[0].call("POST", f"/task-groups/{group_id}/stop")
    await mesh.status(group_id, "stopped")


async def test_the_first_failure_is_named_and_ends_the_group(mesh):
    command = 'if [ "$NODE_RANK" = 1 ]; then echo boom >&2; exit 7; fi; exec sleep 60'
    group_id = await mesh.submit(shell_group("fails", mesh.directory, command))
    done = await mesh.status(group_id, "failed", "completed")
    assert done["failure"]["rank"] == 1 and done["failure"]["exit_code"] == 7
    assert {task["rank"]: task["status"] for task in done["tasks"]} == {0: "exited", 1: "exited"}
    assert [line["stream"] for line in await mesh.lines(group_id, rank=1)] == ["err"]

    async def clean():
        return all(task["released"] for task in (await mesh.group(group_id))["tasks"])

    await eventually("all cards to be clean", clean)


async def test_completed_only_when_the_last_rank_is(mesh):
    command = 'if [ "$NODE_RANK" = 1 ]; then sleep 2; echo out > "$HETEROFLOW_CHECKPOINT_PATH/out"; fi'
    group = shell_group("late", mesh.directory, command)
    group_id = await mesh.submit(group)
    await mesh.status(group_id, "running")

    async def first_is_done():
        return {task["rank"]: task["status"] for task in (await mesh.group(group_id))["tasks"]} == {
            0: "exited",
            1: "running",
        }

    await eventually("rank 0 to exit before rank 1", first_is_done)
    assert (await mesh.group(group_id))["status"] == "running"
    await mesh.status(group_id, "completed", within_s=10)
    assert (mesh.directory / "checkpoints" / "late" / "out").read_text() == "out\n"


async def test_stop_gives_grace_then_ends_everything(mesh):
    """The trap gets its SIGTERM through the shell, the one that ignores it is killed with all it started."""
    command = (
        'if [ "$NODE_RANK" = 0 ]; then trap "echo saved; exit 0" TERM; else trap "" TERM; sleep 301 & fi; '
        "echo up; while true; do sleep 0.1; done"
    )
    group_id = await mesh.submit(shell_group("stops", mesh.directory, command))
    await mesh.status(group_id, "running")

    async def both_up():
        return len([line for line in await mesh.lines(group_id) if line["text"] == "up"]) == 2

    await eventually("both ranks to be up", both_up)
    for _ in range(2):
        answer = await mesh.nodes[2].call("POST", f"/task-groups/{group_id}/stop")
        assert answer.status == 200 and answer.value["status"] in ("stopping", "stopped")
    done = await mesh.status(group_id, "stopped", "failed", within_s=20)
    assert done["status"] == "stopped"
    assert "saved" in [line["text"] for line in await mesh.lines(group_id, rank=0)]
    assert not [line for node in mesh.nodes for line in node.command_lines() if "sleep 301" in line]


async def test_a_claim_that_cannot_succeed_fails_the_group_with_its_reason(mesh):
    path = mesh.directory / "a-file"
    path.write_text("")
    group_id = await mesh.submit(shell_group("claim", mesh.directory, "true", checkpoint_path=str(path)))
    done = await mesh.status(group_id, "failed", within_s=20)
    assert "not a directory" in done["failure"]["text"], done["failure"]
    assert all(task["status"] == "cancelled" for task in done["tasks"])


@pytest.mark.attack(3)
async def test_a_path_that_leaves_through_a_link(mesh):
    (mesh.directory / "link").symlink_to("/etc")
    group_id = await mesh.submit(
        shell_group("link", mesh.directory, "true", checkpoint_path=str(mesh.directory / "link" / "x"))
    )
    done = await mesh.status(group_id, "failed", within_s=20)
    assert "leads through a link" in done["failure"]["text"]
    assert not os.path.exists("/etc/x")


async def test_two_groups_do_not_save_into_one_directory_by_two_names(mesh):
    shared = mesh.directory / "one-directory"
    shared.mkdir()
    (mesh.directory / "its-other-name").symlink_to(shared)
    first = await mesh.submit(shell_group("first", mesh.directory, "sleep 1000", checkpoint_path=str(shared)))
    await mesh.status(first, "running")
    by_link = shell_group("second", mesh.directory, "true", checkpoint_path=str(mesh.directory / "its-other-name"))
    done = await mesh.status(await mesh.submit(by_link), "failed", within_s=20)
    assert done["failure"]["class"] == "checkpoint_path_in_use" and first in done["failure"]["text"], done["failure"]
    await mesh.nodes[0].call("POST", f"/task-groups/{first}/stop")
    await mesh.status(first, "stopped")
    await mesh.status(await mesh.submit(by_link), "completed")


async def test_resume_is_decided_once_from_what_is_complete(mesh):
    group = shell_group("resume", mesh.directory, "echo from=$HETEROFLOW_RESUME_FROM_CHECKPOINT")
    checkpoints = mesh.directory / "checkpoints" / "resume"
    for name in ("step-9", "step-100", "step-200.inprogress", "step-x"):
        (checkpoints / name).mkdir(parents=True)
        (checkpoints / name / "weights").write_text("x")
    (checkpoints / "step-300").write_text("a file is no checkpoint")
    (checkpoints / "step-400").symlink_to(checkpoints / "step-9")
    group_id = await mesh.submit(group)
    done = await mesh.status(group_id, "completed")
    assert done["resume"]["path"] == str(checkpoints / "step-100") and done["resume"]["step"] == 100
    assert {line["text"] for line in await mesh.lines(group_id)} == {f"from={checkpoints}/step-100"}


async def test_a_path_that_the_document_names_is_looked_at_and_never_replaced(mesh):
    place = mesh.directory / "named"
    for name, file in (("other/step-5", "weights"), ("run/step-100", "weights"), ("other/step-7", ".complete")):
        (place / name).mkdir(parents=True)
        (place / name / file).write_text("x")

    async def asked(path: str, name: str) -> dict[str, Any]:
        document = shell_group(name, mesh.directory, 'echo "from=$HETEROFLOW_RESUME_FROM_CHECKPOINT"')
        document["training"] |= {"checkpoint_path": str(place / "run"), "resume_from_checkpoint": path}
        group_id = await mesh.submit(document)
        done = await mesh.status(group_id, "completed", "failed", within_s=60)
        done["lines"] = {line["text"] for line in await mesh.lines(group_id)} if done["status"] == "completed" else None
        return done

    for path, step in ((str(place / "other" / "step-5"), 5), ("/checkpoint/step-100", 100)):
        real = path.replace("/checkpoint", str(place / "run"))
        done = await asked(path, f"from-{step}")
        assert done["lines"] == {f"from={real}"}, done
        assert done["resume"] == {"path": real, "step": step, "source": "document"}
    for name, code, words in (
        ("step-7", "resume_incomplete", "is not complete there: holds nothing but its marker; name one that is whole"),
        ("step-9", "resume_missing", "does not exist there; mount the share that holds it on every node"),
    ):
        path = str(place / "other" / name)
        done = await asked(path, f"no-{name}")
        failure = done["failure"]
        assert (done["status"], failure["class"], done["resume"]) == ("failed", code, None), done
        assert "rank 0 on node-" in failure["text"] and f"{path} {words}" in failure["text"]
        assert all(task["status"] == "cancelled" for task in done["tasks"])
    assert sorted(one.name for one in (place / "other").iterdir()) == ["step-5", "step-7"]


async def test_a_killed_agent_s_task_is_adopted_and_its_log_has_no_gap(mesh):
    command = "for i in $(seq 1 80); do echo $NODE_RANK:$i; sleep 0.1; done"
    group_id = await mesh.submit(shell_group("adopted", mesh.directory, command))
    running = await mesh.status(group_id, "running")
    places = {task["node_id"] for task in running["tasks"]}
    reader = next(node for node in mesh.nodes if node.name not in places)
    follow = asyncio.create_task(mesh.lines(group_id, node=reader.number, follow=True))
    await asyncio.sleep(1.5)  # some of the log before, some after
    victim = next(node for node in mesh.nodes if node.name in places)
    before = victim.agent_pid
    victim.kill_agent()
    done = await mesh.status(group_id, "completed", "failed", node=reader.number, within_s=40)
    assert done["status"] == "completed" and done["attempt"] == 1, done
    assert victim.agent_pid not in (None, before)
    lines = await asyncio.wait_for(follow, 15)
    for rank in (0, 1):
        assert [line["text"] for line in lines if line["rank"] == rank] == [f"{rank}:{i}" for i in range(1, 81)]


async def test_tasks_end_before_anyone_sees_it_while_the_agent_is_dead(mesh):
    group_id = await mesh.submit(shell_group("unseen", mesh.directory, "sleep 2; exit 3", n_nodes=1))
    running = await mesh.status(group_id, "running")
    victim = next(node for node in mesh.nodes if node.name == running["tasks"][0]["node_id"])
    reader = next(node for node in mesh.nodes if node is not victim)
    agent = victim.agent_pid
    victim.freeze_agent()
    await asyncio.sleep(3)  # the rank ends meanwhile, well within the lease
    os.kill(agent, 9)
    done = await mesh.status(group_id, "failed", "completed", node=reader.number, within_s=20)
    assert done["failure"]["exit_code"] == 3 and done["attempt"] == 1


async def test_two_hundred_submits_once_each_through_every_node(mesh):
    """Answers are thrown away and the same key is sent to the next node."""

    async def insist(number):
        key = f"k-{number}"
        group = shell_group(f"many-{number}", mesh.directory, "true", n_nodes=3, per_node_gpu=2)
        group["task"]["gpu_required"] = 2
        ids = set()
        for node in (number, number + 1, number + 2):
            try:
                async with asyncio.timeout(0.02 if node == number else 20):
                    ids.add(await mesh.submit(group, node % 3 + 1, key))
            except TimeoutError:
                continue
        return ids

    began = time.monotonic()
    blocker = shell_group("blocker", mesh.directory, "sleep 600", n_nodes=3)
    blocker_id = await mesh.submit(blocker)
    await mesh.status(blocker_id, "running")
    answers = [ids for at in range(0, 200, 40) for ids in await asyncio.gather(*map(insist, range(at, at + 40)))]
    assert all(len(ids) == 1 for ids in answers) and len({next(iter(ids)) for ids in answers}) == 200
    listed = await mesh.nodes[1].call("GET", "/task-groups?name=many-&limit=1000")
    assert len(listed.value["groups"]) == 200, f"after {time.monotonic() - began:.1f} s"
    queue = (await mesh.nodes[0].call("GET", "/queue")).value
    assert queue["total"] == 200 and all(entry["pending_reason"] for entry in queue["queue"][:5]), queue["queue"][:2]
    assert await _stop_all(mesh, [next(iter(ids)) for ids in answers] + [blocker_id])


@pytest.mark.attack(34)
async def test_the_token_is_in_no_log_no_state_and_no_task(mesh):
    """After all of the above: nothing on disk but the token files themselves, no command line and no environment."""
    token = mesh.token.encode()

    def held(path):
        try:
            return path.is_file() and path.name != "token" and token in path.read_bytes()
        except FileNotFoundError:
            return False  # agents go on removing what is over

    holders = [path for path in mesh.directory.rglob("*") if held(path)]
    assert holders == []
    for node in mesh.nodes:
        for pid in node.family():
            for part in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    assert token not in Path(f"/proc/{pid}/{part}").read_bytes(), (pid, part)


async def test_many_large_documents_are_listed_in_pages(mesh):
    """Sixty documents of 44 KB are more than one message of a voter may hold."""
    blocker_id = await mesh.submit(shell_group("blocker-2", mesh.directory, "sleep 600", n_nodes=3))
    await mesh.status(blocker_id, "running")
    params = {f"key_{number}": "x" * 4000 for number in range(11)}
    ids = []
    for number in range(60):
        group = shell_group(f"large-{number}", mesh.directory, "true", n_nodes=3, per_node_gpu=2, hyper_params=params)
        group["task"]["gpu_required"] = 2
        ids.append(await mesh.submit(group))
    listed, page = [], {"cursor": ""}
    while page["cursor"] is not None:
        after = f"&cursor={page['cursor']}" if page["cursor"] else ""
        page = (await mesh.nodes[2].call("GET", f"/task-groups?name=large-&limit=1000{after}")).value
        listed += [group["group_id"] for group in page["groups"]]
    assert listed == ids[::-1]
    assert (await mesh.nodes[1].call("GET", "/queue")).value["total"] == 60
    assert await _stop_all(mesh, [*ids, blocker_id])


async def _stop_all(mesh, group_ids):
    for at in range(0, len(group_ids), 50):
        chunk = group_ids[at : at + 50]
        done = await asyncio.gather(*(mesh.nodes[0].call("POST", f"/task-groups/{g}/stop") for g in chunk))
        assert all(answer.status == 200 for answer in done)
    return True
