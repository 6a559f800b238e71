"""clone, delete, top and curves of a group: what people and programs read, exit codes."""

import json
import stat
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from agentd.runtime.memory import Behaviour
from mesh.memory import MemoryMesh
from schemas.as_written_yaml import parse_yaml
from tests.integration.served_api import served
from tests.integration.telemetry_hosts import telemetry_mesh
from tests.integration.test_cli import HOSTILE, Cli

AS_WRITTEN = {"lr": "1e-4", "amp": "on", "seed": "0755", "at": "22:30", "empty": "", "odd": f"a: b # {HOSTILE}\n- x"}


@pytest.fixture
async def cli(tmp_path):
    mesh = MemoryMesh()
    async with served(tmp_path, mesh) as client:
        yield Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path)


async def config_of(cli, group_id):
    assert await cli("show", group_id, "-o", "json") == 0, cli.err
    return json.loads(cli.out)["config"]


async def stopped(cli, **over):
    """A group whose checkpoint path is free again."""
    group_id = await cli.submit(**over)
    assert await cli("stop", group_id) == 0
    return group_id


class TestClone:
    async def test_what_is_printed_submits_the_same_group(self, cli):
        first = await stopped(cli, name="a", hyper_params=AS_WRITTEN)
        assert await cli("clone", first) == 0
        yaml = cli.out
        assert "\x1b" not in yaml and "\u202e" not in yaml
        assert await cli("submit", cli.file(yaml, "again.yaml")) == 0, cli.err
        assert await config_of(cli, cli.out.strip()) == await config_of(cli, first)

    async def test_yaml_by_name_and_json(self, cli):
        first = await stopped(cli, name="a", hyper_params=AS_WRITTEN)
        assert await cli("clone", "a", "-o", "yaml") == 0
        printed = cli.out
        assert await cli("clone", first, "-o", "json") == 0
        assert await cli("submit", cli.file(cli.out)) == 0, cli.err
        assert await config_of(cli, cli.out.strip()) == await config_of(cli, first)
        assert parse_yaml(printed.encode())["name"] == "a"

    async def test_a_field_replaced(self, cli):
        first = await stopped(cli, name="a", hyper_params={"lr": "1e-4"})
        assert await cli("clone", first, "--set", "training.hyper_params.lr=3e-4", "--set", "name=b") == 0
        assert await cli("submit", cli.file(cli.out, "b.yaml")) == 0, cli.err
        config = await config_of(cli, cli.out.strip())
        assert (config["name"], config["training"]["hyper_params"]) == ("b", {"lr": "3e-4"})

    def editor(self, tmp_path: Path, code: str) -> dict[str, str]:
        script = tmp_path / "editor.py"
        script.write_text(
            f"import sys\npath = sys.argv[1]\ntext = open(path).read()\n{code}\nopen(path, 'w').write(text)\n"
        )
        return {"EDITOR": f"{sys.executable} {script}"}

    async def test_edit_submits_what_was_saved(self, cli, tmp_path):
        first = await stopped(cli, name="a", hyper_params={"lr": "1e-4"})
        env = self.editor(tmp_path, "text = text.replace('1e-4', '5e-4').replace('name: a', 'name: b')")
        assert await cli("clone", first, "--edit", env=env) == 0, cli.err
        config = await config_of(cli, cli.out.strip())
        assert (config["name"], config["training"]["hyper_params"]) == ("b", {"lr": "5e-4"})

    async def test_edit_that_changes_nothing_or_fails_submits_nothing(self, cli, tmp_path):
        first = await cli.submit(name="a")
        assert await cli("clone", first, "--edit", env=self.editor(tmp_path, "pass")) == 2
        assert "nothing was changed" in cli.err
        assert await cli("clone", first, "--edit", env=self.editor(tmp_path, "sys.exit(3)")) == 2
        assert await cli("clone", first, "--edit", env={"EDITOR": "/no/such/editor"}) == 2
        assert "cannot be started" in cli.err
        assert await cli("ls", "-o", "json") == 0
        assert len(json.loads(cli.out)["groups"]) == 1

    async def test_a_text_that_is_refused_is_kept(self, cli, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        first = await cli.submit(name="a")
        assert await cli("clone", first, "--edit", env=self.editor(tmp_path, "text = text.replace('ddp', 'dpp')")) == 2
        (kept,) = tmp_path.glob(f"{first}-*.yaml")
        assert str(kept) in cli.err and "dpp" in kept.read_text()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600


class TestDelete:
    async def test_finished_ones_go_and_active_ones_are_refused(self, cli):
        await cli.join()
        done = await cli.submit(name="done")
        await cli.run_group(done, exit_code=0)
        active = await cli.submit(name="active")
        assert await cli("delete", active, done) == 5
        assert cli.out == f"{done} deleted\n" and active in cli.err
        assert await cli("show", done) == 3
        assert await cli("show", active) == 0

    async def test_a_mistyped_name_deletes_nothing(self, cli):
        await cli.join()
        done = await cli.submit(name="done")
        await cli.run_group(done, exit_code=0)
        assert await cli("delete", "done", "dnoe") == 3
        assert await cli("show", done) == 0

    async def test_json(self, cli):
        await cli.join()
        done = await cli.submit(name="done")
        await cli.run_group(done, exit_code=0)
        assert await cli("delete", done, "-o", "json") == 0
        assert json.loads(cli.out) == {"group_id": done, "deleted": True}


@pytest.mark.parametrize("verb", ["ls", "queue", "nodes"])
async def test_every_output(cli, verb):
    await cli.join()
    await cli.submit(name="a job")
    assert await cli(verb, "-o", "json") == 0
    value = json.loads(cli.out)
    assert await cli(verb, "-o", "yaml") == 0
    shown = YAML(typ="safe", pure=True).load(cli.out)
    assert _without_clocks(shown) == _without_clocks(value)
    assert await cli(verb, "-o", "wide") == 0
    assert len(cli.out.splitlines()) == 2


def _without_clocks(value):
    if isinstance(value, dict):
        return {name: _without_clocks(item) for name, item in value.items() if name not in ("lease_age_ms", "since_s")}
    return [_without_clocks(item) for item in value] if isinstance(value, list) else value


async def test_a_wide_list_is_not_cut_and_says_more(cli):
    await cli.join()
    group_id = await cli.submit(name="wide", n_nodes=5)
    assert await cli("ls", "-o", "wide", tty=True) == 0
    head, row = cli.out.splitlines()
    assert "TENANT" in head and "FRAMEWORK" in head and group_id in row and "…" not in row
    assert await cli("ls") == 0
    assert "TENANT" not in cli.out


class TestWhatIsNotThere:
    async def test_a_name_that_was_mistyped_and_an_id_that_was_cut(self, cli):
        group_id = await cli.submit(name="Llama-SFT")
        for reference, meant in (("llama-stf", "Llama-SFT"), (group_id[:9], group_id)):
            assert await cli("show", reference) == 3
            assert f"Did you mean {meant}?" in cli.err
        assert await cli("show", "tg-") == 3 and "Did you mean" not in cli.err

    async def test_ranks_and_attempts_are_refused_alike_by_all_who_take_them(self, cli):
        await cli.join()
        group_id = await cli.submit(name="one")
        await cli.run_group(group_id, exit_code=0)
        for words in (("logs", group_id, "--rank", "1"), ("files", "ls", group_id, "--rank", "1")):
            assert await cli(*words) == 3, words
            assert "has no rank 1" in cli.err
        for verb in ("logs", "show"):
            assert await cli(verb, group_id, "--attempt", "2") == 3, verb
            assert "has had 1 attempt" in cli.err
        waiting = await cli.submit(name="waits")
        assert await cli("show", waiting) == 0


async def test_a_mesh_shows_who_leads_and_what_was_ordered_of_it(cli):
    await cli.join()
    assert await cli("mesh", "pause-scheduling", "--reason", "slow disks") == 0
    assert await cli("mesh", "show") == 0, cli.err
    assert "scheduling paused" in cli.out and "slow disks" in cli.out and "VOTER" in cli.out
    assert await cli("mesh", "show", "-o", "json") == 0
    assert json.loads(cli.out)["scheduling_paused"]["reason"] == "slow disks"


async def test_an_editor_needs_a_terminal_or_a_name(cli):
    group_id = await cli.submit(name="a")
    assert await cli("clone", group_id, "--edit") == 2
    assert "EDITOR" in cli.err


async def test_an_output_that_a_verb_has_not(cli):
    assert await cli("exec", "g", "0", "-o", "yaml", "--", "ls") == 2
    assert "yaml" in cli.err


@pytest.fixture
async def mesh(tmp_path):
    async with telemetry_mesh(tmp_path, lambda _: Behaviour(output="hello\n"), stall_after_s=0.3) as found:
        yield found


class TestTop:
    async def test_step_loss_age_and_utilisation(self, mesh, tmp_path):
        cli = Cli(mesh.mesh, mesh.agents[1].address, tmp_path)
        assert await cli("top") == 0 and "nothing runs" in cli.err
        group_id = await mesh.run_group()
        mesh.events(1, (1234567, time.time(), 0.25))
        mesh.agents[0].cards.util, mesh.agents[1].cards.util = 90.0, None
        await mesh.rounds(2)
        mesh.agents[1].telemetry.leader._cached = None
        assert await cli("top") == 0, cli.err
        head, row = cli.out.splitlines()
        assert head.split()[:5] == ["NAME", "STATUS", "GPU", "RUN", "STEP"]
        assert "1,234,567" in row and "0.25" in row and "90?" in row and group_id in row
        assert await cli("top", "-o", "json") == 0
        (group,) = json.loads(cli.out)["groups"]
        assert group["group_id"] == group_id and group["now"]["step"] == 1234567

    async def test_what_was_not_heard_of_yet(self, mesh, tmp_path):
        await mesh.run_group()
        cli = Cli(mesh.mesh, mesh.agents[0].address, tmp_path)
        assert await cli("top") == 0
        assert "not heard of yet" in cli.out


class TestCurves:
    async def test_a_group_by_name(self, mesh, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        await mesh.run_group()
        cli = Cli(mesh.mesh, mesh.agents[1].address, tmp_path)
        assert await cli("curves", "g1") == 0
        assert cli.out.startswith("no_log: ")
        mesh.events(1, (1, time.time(), 2.0), (2, time.time(), float("nan")), (3, time.time(), 0.5))
        assert await cli("curves", "g1") == 0
        assert "loss is 0.5 at step 3" in cli.out and "×" in cli.out
        assert await cli("curves", "g1", "--json") == 0
        online = json.loads(cli.out)
        assert await cli("curves", str(tmp_path / "ckpt-1"), "--json") == 0
        offline = json.loads(cli.out)
        assert online == {"state": "nan", "tags": {f"{name}": value for name, value in online["tags"].items()}}
        assert online["tags"]["loss"] == offline["tags"]["tb_logs/loss"]

    async def test_a_host_that_is_down_is_an_exit_code(self, mesh, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        await mesh.run_group()
        await mesh.agents[0].server.close()
        cli = Cli(mesh.mesh, mesh.agents[1].address, tmp_path)
        assert await cli("curves", "g1") == 4
        assert cli.out.startswith("probe_failed: node n1")
        assert await cli("curves", "g9") == 3
