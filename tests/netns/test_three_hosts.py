"""Three hosts with their own addresses and roots: a bundle, one command each, a mesh with TLS, a gang across them,
another version under the running gang, and away with all of it."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.netns.conftest import PYTHON
from tests.netns.hosts import WAIT_S, hosts
from tests.netns.job import group, steps, submit, uninstalled
from tests.waiting import until

pytestmark = [pytest.mark.need("netns"), pytest.mark.slow, pytest.mark.timeout(600)]
TRAINER = Path(__file__).resolve().parents[2] / "scripts" / "examples" / "train_numpy.py"


@pytest.fixture
def three(place):
    with hosts(place, ["a", "b", "c"], PYTHON) as made:
        yield made


def copied(host, bundle):
    """As people do it: one file, unpacked on the host."""
    packed = bundle.with_name(bundle.name + ".tar.gz")
    shutil.copy(packed, host.directory)
    host.run("tar", "-C", host.directory, "-xzf", host.directory / packed.name)
    return host.directory / bundle.name


def whole(host):
    listed = json.loads(host.heteroflow("nodes", "-o", "json"))
    return [node["state"] for node in listed["nodes"]] == ["ready"] * 3


def pids(all_hosts):
    paths = [path for host in all_hosts for path in host.data.glob("tasks/*/*/*/pid.json")]
    return {path: json.loads(path.read_text())["pid"] for path in sorted(paths)}


def found_mesh(three, bundle, directory):
    """One command a host."""
    a, b, c = three
    common = ("--gpus", "simulated:1xH100", "--allow-path", directory, "--by-hand")
    mine = ("--bootstrap", "--voters", "3", "--address", a.address, "--name", "a")
    assert "agent: joining" in a.install(copied(a, bundle), *mine, *common)
    # Settings that change before it is a member are obeyed.
    again = a.install(a.directory / bundle.name, *mine, *common, "--label", "rack=a1")
    assert "written anew" in again and "agent: joining" in again
    token = directory / "join-token"
    a.agentd("token", "create", "--data-dir", a.data, "--uses", 2, "--out", token)

    def join(host):
        mine = ("--join", f"{a.address}:7460", "--token-file", token, "--name", host.name)
        return host.install(copied(host, bundle), *mine, *common)

    with ThreadPoolExecutor(2) as pool:
        assert all("agent: ok" in said for said in pool.map(join, (b, c)))
    for host in three:
        until("three nodes to be ready", partial(whole, host), WAIT_S)
    labels = {node["node_id"]: node["labels"] for node in json.loads(c.heteroflow("nodes", "-o", "json"))["nodes"]}
    assert labels["a"] == {"rack": "a1"} and not labels["b"]


def test_a_mesh_of_three(three, bundles, tmp_path):
    a, b, c = three
    shared = tmp_path / "shared"
    shared.mkdir()
    found_mesh(three, bundles.first, shared)
    for host in three:
        shown = host.agentd("cert", "show", "--data-dir", host.data)
        assert f"node         {host.name} (voter)" in shown and host.address in shown
    in_clear = f"import urllib.request as r; r.urlopen('http://{b.address}:7460/healthz', timeout=5)"
    assert "HTTPError" not in c.run(sys.executable, "-c", in_clear, code=1), "in clear nobody is answered"

    trainer = [sys.executable, str(TRAINER), "--step-delay", "100", "--log-every", "1"]
    job = submit(c, trainer, nodes=2, checkpoint_path=str(shared / "job"), hyper_params={"steps": "100000"})
    until("the gang to train", lambda: len(steps(c, job)) > 3, WAIT_S)
    before, places = pids(three), {task["node_id"] for task in group(a, job)["tasks"]}
    assert len(before) == len(places) == 2

    for host in three:
        assert "tasks that ran before run on" in host.install(copied(host, bundles.second), "upgrade")
        until("the mesh to be whole", partial(whole, host), WAIT_S)
    assert {host.version() for host in three} == {bundles.second.name.split("-")[1]}
    seen = len(steps(a, job))
    until("the gang to train on", lambda: len(steps(a, job)) > seen + 3, WAIT_S)
    shown = group(b, job)
    assert shown["status"] == "running" and {task["attempt"] for task in shown["tasks"]} == {1}
    assert pids(three) == before

    c.heteroflow("stop", job, "--wait", code=None)
    for host in three:
        until("the tasks to end", partial(uninstalled, host, bundles.second), WAIT_S)
        left = {"/".join(name.split("/")[:3]) for name in host.files()}
        own = "agent.toml.before" if host is a else "join.token"
        assert left == {"etc/heteroflow/agent.toml", f"etc/heteroflow/{own}", "var/lib/heteroflow"}
        assert host.processes() == []
        assert "left: nothing" in host.install(bundles.second, "uninstall", "--purge")
        assert list(host.root.iterdir()) == []
