"""login, context, whoami, key and audit against the real API: what is written, what is printed, exit codes."""

import io
import json
import stat

import pytest

from mesh.memory import MemoryMesh
from tests.integration.served_api import TOKEN, document, served
from tests.integration.test_cli import Cli


@pytest.fixture
async def cli(tmp_path):
    mesh = MemoryMesh()
    async with served(tmp_path, mesh) as client:
        yield Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path)


async def key(cli, name="ada", *words, role="member"):
    """(id, text) of a new one, made with the mesh token."""
    assert await cli("key", "create", name, "--role", role, *words, "-o", "json") == 0, cli.err
    made = json.loads(cli.out)
    return made["key_id"], made.get("key")


async def submit_red(cli):
    assert await cli("submit", cli.file(document() | {"tenant": "red"})) == 0, cli.err
    return cli.out.strip()


async def as_(cli, text, *words):
    return await cli(*words, env={"HETEROFLOW_TOKEN": text})


async def test_a_key_is_shown_once_and_opens_what_its_role_says(cli):
    key_id, text = await key(cli, "ada", "--tenant", "red", "--expires", "90d")
    assert await cli("key", "ls") == 0
    assert key_id in cli.out and text not in cli.out and text.rsplit("_", 1)[1] not in cli.out
    assert await as_(cli, text, "whoami") == 0
    assert "ada, member of tenant red" in cli.out and "tasks:write" in cli.out and TOKEN not in cli.out
    assert await as_(cli, text, "key", "ls") == 5
    assert "ada may not manage API keys" in cli.err and "the role member does not allow it, admin does" in cli.err
    assert "ask an admin" in cli.err.lower()
    assert await as_(cli, text, "audit") == 5 and "operator does" in cli.err


async def test_a_viewer_is_told_which_role_stops_groups_and_who_gives_it(cli):
    group = await submit_red(cli)
    _, viewer = await key(cli, "vi", "--tenant", "red", role="viewer")
    assert await as_(cli, viewer, "show", group) == 0
    assert await as_(cli, viewer, "stop", group) == 5
    assert "vi may not submit, stop or change task groups" in cli.err and "--role member" in cli.err
    _, other = await key(cli, "bo", "--tenant", "blue")
    assert await as_(cli, other, "stop", group) == 3
    assert await as_(cli, other, "ls") == 0 and group not in cli.out


async def test_a_narrowed_key_says_which_scope_is_missing(cli):
    _, text = await key(cli, "bot", "--scope", "tasks:read", role="admin")
    assert await as_(cli, text, "nodes") == 5
    assert "narrowed to tasks:read" in cli.err and "mesh:read" in cli.err


async def test_revoking_by_id_by_name_and_twice(cli):
    first, text = await key(cli)
    second, _ = await key(cli)
    assert await cli("key", "revoke", "ada") == 2
    assert first in cli.err and second in cli.err
    assert await cli("key", "revoke", first) == 0 and "revoked" in cli.out
    assert await cli("key", "revoke", "ada") == 0 and second in cli.out
    assert await as_(cli, text, "ls") == 5 and "revoked" in cli.err
    assert await cli("key", "revoke", "ada") == 3
    assert await cli("key", "create", "x") == 2 and "--role" in cli.err


async def test_login_keeps_the_key_for_its_owner_alone(cli, monkeypatch, tmp_path):
    _, text = await key(cli, "ada", "--tenant", "red")
    env = {"HETEROFLOW_TOKEN": "", "HETEROFLOW_NODES": ""}
    monkeypatch.setattr("sys.stdin", io.StringIO(text + "\n"))
    assert await cli("login", "lab", "--node", cli.address, env=env) == 0, cli.err
    assert "lab: ada, member of tenant red" in cli.out and text not in cli.out + cli.err
    kept = tmp_path / ".config" / "heteroflow" / "keys" / "lab"
    assert kept.read_text().strip() == text and stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert await cli("whoami", env=env) == 0 and "ada" in cli.out
    assert await cli("whoami", "--context", "lab") == 0 and "ada" in cli.out
    assert await cli("context", "ls", env=env) == 0 and "lab" in cli.out and text not in cli.out


async def test_a_login_that_is_refused_changes_nothing(cli, monkeypatch, tmp_path):
    for typed, code in (("mistyped\n", 5), ("\n", 2), ("hfk_" + "a" * 16 + "_" + "A" * 43 + "\n", 5)):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert await cli("login", "lab", "--node", cli.address) == code
        assert not typed.strip() or typed.strip() not in cli.out + cli.err
    assert await cli("login", "../x", "--node", cli.address) == 2
    assert not (tmp_path / ".config").exists()


async def test_contexts_are_chosen_and_forgotten(cli, tmp_path):
    await key(cli, "ada", "--out", str(tmp_path / "ada.key"))
    assert stat.S_IMODE((tmp_path / "ada.key").stat().st_mode) == 0o600
    for name in ("lab", "prod"):
        assert await cli("login", name, "--node", cli.address, "--token-file", str(tmp_path / "ada.key")) == 0, cli.err
    assert await cli("context", "use", "lab") == 0
    assert await cli("context", "ls", "-o", "json") == 0
    said = json.loads(cli.out)
    assert said["current"] == "lab" and set(said["contexts"]) == {"lab", "prod"}
    assert said["contexts"]["lab"]["key_file"] == str(tmp_path / "ada.key")
    assert await cli("context", "rm", "lab") == 0
    assert await cli("context", "use", "lab") == 3 and "prod" in cli.err
    assert await cli("key", "create", "x", "--role", "viewer", "--out", str(tmp_path / "ada.key")) == 2


async def test_a_short_lived_token_for_scripts(cli, tmp_path):
    await key(cli, "ada", "--out", str(tmp_path / "ada.key"))
    words = ("login", "--node", cli.address, "--token-file", str(tmp_path / "ada.key"), "--print-token")
    assert await cli(*words) == 0, cli.err
    token = cli.out.strip()
    assert token.count(".") == 2 and not (tmp_path / ".config").exists()
    assert await as_(cli, token, "whoami", "-o", "json") == 0
    assert json.loads(cli.out)["name"] == "ada" and json.loads(cli.out)["expires_at"] is not None


async def test_the_audit_shows_changes_and_refusals(cli):
    group = await submit_red(cli)
    key_id, member = await key(cli, "mo", "--tenant", "red")
    assert await as_(cli, member, "delete", group) == 5
    assert await as_(cli, member, "stop", group) == 0
    assert await cli("audit") == 0
    lines = cli.out.splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["StopGroup", "DeleteGroup", "PutKey", "SubmitGroup"]
    assert "refused: group_active" in lines[2] and "done" in lines[1] and "mo" in lines[1] and "n1" in lines[1]
    assert member not in cli.out
    assert await cli("audit", "--who", "mo", "--limit", "1", "-o", "json") == 0
    (entry,) = json.loads(cli.out)["entries"]
    assert (entry["what"], entry["key_id"], entry["target"]) == ("StopGroup", key_id, group)
