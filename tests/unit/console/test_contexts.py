"""Several meshes by name: what is written is read again, and the key of one is not shown to another."""

import stat

import pytest

from console.contexts import Context, load_contexts, save_contexts, write_private
from console.endpoints import find_target, read_secret
from schemas.errors import InvalidInput, NotFound


@pytest.fixture
def env(tmp_path):
    return {"HOME": str(tmp_path)}


def saved(tmp_path, env, **named):
    contexts = load_contexts(env)
    for name, node in named.items():
        key = tmp_path / f"{name}.key"
        write_private(key, f"key-of-{name}\n")
        contexts = contexts.with_context(name, Context((node,), str(key), f"/ca/{name}.pem"))
    save_contexts(contexts)
    return contexts


def test_what_is_written_is_read_again(tmp_path, env):
    odd = Context(("a:1", "[::1]:2"), '/a "quoted" path\\n', "/ca\n[contexts.evil]")
    save_contexts(load_contexts(env).with_context("lab.1", odd))
    assert load_contexts(env).named == {"lab.1": odd}
    path = tmp_path / ".config" / "heteroflow" / "contexts.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["contexts.toml"]


def test_the_current_one_is_used_and_another_by_name(tmp_path, env):
    saved(tmp_path, env, lab="lab:1", prod="prod:1")
    found = find_target(environment=env)
    assert (found.nodes, found.token, found.ca_file) == (("prod:1",), "key-of-prod", "/ca/prod.pem")
    assert find_target(environment=env, context="lab").token == "key-of-lab"
    assert find_target(environment=env | {"HETEROFLOW_CONTEXT": "lab"}).nodes == ("lab:1",)


def test_a_named_context_takes_nothing_from_the_environment(tmp_path, env):
    saved(tmp_path, env, lab="lab:1")
    env |= {"HETEROFLOW_NODES": "elsewhere:1", "HETEROFLOW_TOKEN": "of-elsewhere", "HETEROFLOW_TOKEN_FILE": "/nowhere"}
    found = find_target(environment=env, context="lab")
    assert (found.nodes, found.token) == (("lab:1",), "key-of-lab")
    assert find_target(environment=env | {"HETEROFLOW_TOKEN_FILE": ""}).token == "of-elsewhere"


def test_flags_stand_above_the_context(tmp_path, env):
    saved(tmp_path, env, lab="lab:1")
    write_private(tmp_path / "mine", "mine\n")
    found = find_target(["n:1"], token_file=str(tmp_path / "mine"), environment=env, context="lab")
    assert (found.nodes, found.token, found.ca_file) == (("n:1",), "mine", "/ca/lab.pem")


def test_an_unknown_name_is_said_with_the_known_ones(tmp_path, env):
    saved(tmp_path, env, lab="lab:1")
    with pytest.raises(NotFound) as refused:
        find_target(environment=env, context="lba")
    assert "lab" in refused.value.problem.hint


@pytest.mark.parametrize(
    "text",
    ["x", "contexts = 3", "[contexts.a]", "[contexts.a]\nnodes = []", '[contexts.a]\nnodes = "a:1"', "current = 1"],
)
def test_a_broken_file_is_named(tmp_path, env, text):
    path = tmp_path / ".config" / "heteroflow" / "contexts.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidInput, match=r"contexts\.toml") as refused:
        find_target(environment=env)
    assert refused.value.code == "bad_context"


def test_a_file_that_others_may_write_says_to_whom_the_key_goes_and_is_not_believed(tmp_path, env):
    saved(tmp_path, env, lab="lab:1")
    (tmp_path / ".config" / "heteroflow" / "contexts.toml").chmod(0o620)
    with pytest.raises(InvalidInput, match="written by others"):
        find_target(environment=env)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_may_read_is_not_used(tmp_path, mode):
    path = tmp_path / "key"
    path.write_text("secret")
    path.chmod(mode)
    with pytest.raises(InvalidInput, match="read by others") as refused:
        read_secret(path)
    assert "secret" not in str(refused.value)
