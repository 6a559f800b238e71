import json

import pytest

from console.contexts import Context, load_contexts, save_contexts
from console.endpoints import DEFAULT_NODE, find_target
from schemas.errors import InvalidInput


@pytest.fixture
def env(tmp_path):
    return {"HOME": str(tmp_path), "HETEROFLOW_TOKEN": "secret-1"}


def data_dir(tmp_path, node=None, token="secret-2\n"):
    path = tmp_path / "data"
    path.mkdir()
    (path / "token").write_text(token)
    (path / "token").chmod(0o600)
    (path / "node.json").write_text(json.dumps(node if node is not None else {"api_addr": "127.0.0.1:7999"}))
    return str(path)


def context(tmp_path, text):
    path = tmp_path / ".config" / "heteroflow" / "context.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_flags_then_environment_then_context_file(env, tmp_path):
    assert find_target(environment=env).nodes == (DEFAULT_NODE,)
    context(tmp_path, '{"nodes": ["127.0.0.3:1", "127.0.0.3:2"]}')
    assert find_target(environment=env).nodes == ("127.0.0.3:1", "127.0.0.3:2")
    env["HETEROFLOW_NODES"] = "127.0.0.5:1, [::1]:2"
    assert find_target(environment=env).nodes == ("127.0.0.5:1", "[::1]:2")
    assert find_target(["localhost:1"], environment=env).nodes == ("localhost:1",)


def test_a_data_directory_gives_both(env, tmp_path):
    found = find_target(data_dir=data_dir(tmp_path), environment=env)
    assert (found.nodes, found.token) == (("127.0.0.1:7999",), "secret-2")


def test_a_voters_directory_knows_the_other_voters_too(env, tmp_path):
    directory = data_dir(tmp_path)
    roster = tmp_path / "data" / "voter" / "roster.json"
    roster.parent.mkdir()
    roster.write_text(json.dumps({"voters": [{"api_addr": "127.0.0.1:8001"}, {"api_addr": "127.0.0.1:7999"}, {}]}))
    assert find_target(data_dir=directory, environment=env).nodes == ("127.0.0.1:7999", "127.0.0.1:8001")
    roster.write_text('{"voters": 3}')
    assert find_target(data_dir=directory, environment=env).nodes == ("127.0.0.1:7999",)


def test_token_file_before_environment(env, tmp_path):
    (tmp_path / "t").write_text("secret-3\n")
    (tmp_path / "t").chmod(0o600)
    assert find_target(token_file=str(tmp_path / "t"), environment=env).token == "secret-3"
    assert find_target(environment=env).token == "secret-1"
    env["HETEROFLOW_TOKEN_FILE"] = str(tmp_path / "t")
    assert find_target(environment=env).token == "secret-3"


@pytest.mark.parametrize(
    "node", ["foo", "foo:", ":80", "foo:0", "foo:65536", "foo:x", "http://foo:80", "u@foo:80", "foo:٣"]
)
def test_addresses_are_host_and_port(env, node):
    with pytest.raises(InvalidInput) as refused:
        find_target([node], environment=env)
    assert refused.value.problem.code == "bad_address"


def test_no_token_is_said_with_every_way_to_give_one(tmp_path):
    with pytest.raises(InvalidInput) as refused:
        find_target(environment={"HOME": str(tmp_path)})
    for way in ("--data-dir", "--token-file", "HETEROFLOW_TOKEN_FILE", "HETEROFLOW_TOKEN", "heteroflow login"):
        assert way in refused.value.problem.hint


@pytest.mark.parametrize("text", ["", "  \n", "two words", "a\x07b", "a\nb"])
def test_a_file_without_a_token(tmp_path, env, text):
    with pytest.raises(InvalidInput) as refused:
        find_target(data_dir=data_dir(tmp_path, token=text), environment=env)
    assert refused.value.problem.code == "no_token"


@pytest.mark.parametrize("node", [{}, [], {"api_addr": None}])
def test_a_data_directory_of_an_agent_that_never_started(tmp_path, env, node):
    with pytest.raises(InvalidInput, match="api_addr"):
        find_target(data_dir=data_dir(tmp_path, node), environment=env)


def test_a_directory_that_is_no_data_directory(tmp_path, env):
    with pytest.raises(InvalidInput, match=r"node\.json cannot be read"):
        find_target(data_dir=str(tmp_path), environment=env)


@pytest.mark.parametrize("text", ["{", "[]", '{"nodes": "a:1"}', '{"nodes": [1]}', '{"nodes": [], "token_file": 3}'])
def test_a_broken_context_file_is_named(tmp_path, env, text):
    context(tmp_path, text)
    with pytest.raises(InvalidInput, match=r"context\.json"):
        find_target(environment=env)


def test_the_ca_of_the_current_context_is_not_asked_of_another_mesh_of_this_host(env, tmp_path):
    """A mesh with TLS that one has logged in to must not break one on loopback, as `scripts/try` starts it."""
    ca = tmp_path / "ca.pem"
    (tmp_path / "key").write_text("secret-4\n")
    (tmp_path / "key").chmod(0o600)
    lab = Context(("gpu-01:7460",), str(tmp_path / "key"), str(ca))
    save_contexts(load_contexts(env).with_context("lab", lab))
    del env["HETEROFLOW_TOKEN"]
    assert find_target(environment=env).ca_file == str(ca)
    # Another node of the same mesh, with its key; and another key of the same mesh.
    assert find_target(["127.0.0.1:7460"], environment=env).ca_file == str(ca)
    assert find_target(token_file=lab.key_file, environment=env).ca_file == str(ca)
    assert find_target(["gpu-02:7460"], token_file=lab.key_file, environment=env).ca_file == str(ca)
    for given in ({"nodes": ["127.0.0.1:7460"], "token_file": lab.key_file}, {"data_dir": data_dir(tmp_path)}):
        assert find_target(**given, environment=env).ca_file == ""
        assert find_target(**given, ca_file=str(ca), environment=env).ca_file == str(ca)
    env |= {"HETEROFLOW_NODES": "127.0.0.1:7460,[::1]:7460", "HETEROFLOW_TOKEN": "secret-1"}
    assert find_target(environment=env).ca_file == ""
    env["HETEROFLOW_NODES"] += ",gpu-01:7460"
    assert find_target(environment=env).ca_file == str(ca)
