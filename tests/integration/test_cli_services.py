"""The command line on groups that are no training."""

import json

from tests.integration.test_cli import Cli, cli

__all__ = ["cli"]
TASK = {"command": "serve --port $PORT", "gpu_required": 2, "ports": {"http": 8000}, "env": {"A": "1"}}
SERVICE = {"name": "llama chat", "task_type": "inference", "task": TASK}
BATCH = {"name": "tokenise math", "task_type": "container", "task": {"command": "true", "gpu_required": 0}}


async def submitted(cli: Cli, document, *words) -> str:
    assert await cli("submit", cli.file(document), *words) == 0, cli.err
    return cli.out.split()[0]


async def test_lists_name_the_type_where_they_differ(cli):
    await cli.join()
    await cli.submit(name="run it")
    assert await cli("ls") == 0 and "TYPE" not in cli.out
    await submitted(cli, SERVICE)
    await submitted(cli, BATCH)
    assert await cli("ls") == 0
    head, *rows = cli.out.splitlines()
    assert head.split()[:3] == ["NAME", "TYPE", "STATUS"]
    assert ["container" in rows[0], "inference" in rows[1], "training" in rows[2]] == [True] * 3


async def test_show_and_why_of_a_service_that_was_built_again(cli):
    await cli.join()
    group_id = await submitted(cli, SERVICE)
    assert await cli("show", group_id) == 0
    assert "type          inference" in cli.out and "framework" not in cli.out and "checkpoints" not in cli.out
    await cli.run_group(group_id, exit_code=0)
    assert await cli("why", group_id) == 0
    assert "it ended and is built again after 1 s" in cli.out and "built again once" in cli.out, cli.out
    assert await cli("show", group_id) == 0
    assert "1 rebuilds" in cli.out and "pending" in cli.out


async def test_waiting_for_a_service_ends_when_it_runs(cli):
    await cli.join()
    group_id = await submitted(cli, SERVICE, "--request-id", "again")
    await cli.run_group(group_id)
    assert await cli("submit", cli.file(SERVICE), "--request-id", "again", "--wait") == 0, cli.err
    assert cli.out.strip() == group_id and "running in attempt 1" in cli.err


async def test_a_clone_is_the_same_service(cli):
    await cli.join()
    group_id = await submitted(cli, SERVICE)
    assert await cli("clone", group_id) == 0
    (cli.dir / "clone.yaml").write_text(cli.out)
    assert await cli("submit", str(cli.dir / "clone.yaml")) == 0, cli.err
    copy = cli.out.split()[0]
    configs = []
    for which in (group_id, copy):
        assert await cli("show", which, "-o", "json") == 0
        configs.append(json.loads(cli.out)["config"])
    assert configs[0] == configs[1] and configs[0]["task"]["ports"] == {"http": 8000}


async def test_lint_and_render(cli):
    path = cli.dir / "service.json"
    path.write_text(json.dumps({**SERVICE, "inference": {"n_nodes": 2}}))
    assert await cli("lint", str(path)) == 0
    assert await cli("render", str(path), "--rank", "1", "-o", "json") == 0
    env = json.loads(cli.out)["env"]
    assert (env["NODE_RANK"], env["NNODES"], env["PORT"], env["HETEROFLOW_PORT_HTTP"]) == ("1", "2", "8000", "8000")
    assert "PET_NNODES" not in env and env["HETEROFLOW_ADDRESS"].startswith("<address of rank")
    assert await cli("render", str(path), "--rank", "2") != 0
    path.write_text(json.dumps({**BATCH, "container": {"hyper_params": {"lr": "1"}}}))
    assert await cli("lint", str(path)) == 1 and "only training has it" in cli.out
