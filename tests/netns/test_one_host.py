"""The installer run for real on one host: interrupted anywhere and run again, upgraded under a running job, brought
back from a version that does not start, and taken away."""

import contextlib
import json
import os
import random
import signal
import tomllib

import pytest

from tests.netns.conftest import PYTHON
from tests.netns.hosts import WAIT_S, hosts
from tests.netns.job import COUNTER, group, steps, submit, uninstalled
from tests.waiting import until

pytestmark = [pytest.mark.need("netns"), pytest.mark.slow, pytest.mark.timeout(600)]
KILLS = 5
# On loopback, in a network of its own.
FIRST = ("--bootstrap", "--address", "127.0.0.1", "--name", "n1", "--gpus", "simulated:2xH100")


@pytest.fixture
def host(place):
    with hosts(place, ["h1"], PYTHON) as (made,):
        yield made


def test_interrupted_anywhere_run_again_and_away_under_a_task(host, bundles):
    seed = int(os.environ.get("HF_INSTALL_SEED", random.randrange(1 << 30)))
    print(f"HF_INSTALL_SEED={seed}")
    dice = random.Random(seed)
    for kill in range(KILLS):
        installer = host.start(bundles.first / "install.sh", "--root", host.root, *FIRST)
        with contextlib.suppress(Exception):
            installer.wait(timeout=dice.uniform(0.1, 2.0 + 2.0 * kill))
        # Now and then only the installer, as the out-of-memory killer does it: what it started works on.
        send = os.killpg if dice.random() < 0.6 else os.kill
        with contextlib.suppress(ProcessLookupError):
            send(installer.pid, signal.SIGKILL)
        installer.wait()

    def installed():
        said = host.install(bundles.first, *FIRST, "--by-hand", code=None)
        assert "another installer" in said or "agent: ok" in said, said
        return "agent: ok" in said

    until("the installer that was left to end", installed, WAIT_S)
    assert os.listdir(host.root / "opt/heteroflow/versions") == [host.version()]
    assert [name for name in host.files() if name.endswith(".new")] == []
    config = tomllib.loads((host.root / "etc/heteroflow/agent.toml").read_text())
    assert config["api"] == "127.0.0.1:7460" and config["data-dir"] == str(host.data)
    # Once more, with all of it there: nothing changes, nothing is started twice.
    before = host.processes()
    assert "agent: ok" in host.install(bundles.first, *FIRST, "--by-hand") and host.processes() == before
    assert "n1" in host.heteroflow("nodes")
    # And away from itself, with a task that runs.
    job = submit(host, COUNTER)
    until("the job to run", lambda: len(steps(host, job)) > 0, WAIT_S)
    installer = host.root / "opt/heteroflow/current/installer/install.sh"
    assert "1 tasks run on this host" in host.run(installer, "uninstall", "--root", host.root, code=1)
    said = host.run(installer, "uninstall", "--root", host.root, "--force", "--purge")
    assert "left: nothing" in said and list(host.root.iterdir()) == [] and host.processes() == []


def test_upgrade_under_a_running_job_and_away_with_it(host, bundles):
    host.install(bundles.first, *FIRST, "--by-hand")
    first = host.version()
    job = submit(host, COUNTER)
    until("the job to run", lambda: len(steps(host, job)) > 2, WAIT_S)
    pid = next(host.data.glob("tasks/*/*/*/pid.json"))
    before = json.loads(pid.read_text())["pid"]

    said = host.install(bundles.second, "upgrade")
    second = host.version()
    assert second != first and f"version {second} runs; 1 of 1 tasks that ran before run on" in said
    assert second in host.agentd("--version")
    seen = len(steps(host, job))
    until("the job to go on", lambda: len(steps(host, job)) > seen + 2, WAIT_S)
    shown = group(host, job)
    assert shown["status"] == "running" and shown["tasks"][0]["attempt"] == 1
    assert json.loads(pid.read_text())["pid"] == before
    counted = [int(line.split()[-1]) for line in steps(host, job)]
    assert counted == list(range(1, len(counted) + 1)), "no line is lost or repeated"
    assert f"version {second} runs here already" in host.install(bundles.second, "upgrade")

    said = host.install(bundles.broken, "upgrade", code=1)
    assert f"version {second} runs again as before" in said and "this version does not start" in said
    assert host.version() == second and group(host, job)["status"] == "running"
    assert json.loads(pid.read_text())["pid"] == before, "the task ran on"
    # The shim of the first version still runs the task, two upgrades later.
    assert first in os.listdir(host.root / "opt/heteroflow/versions")

    assert "1 tasks run on this host" in host.install(bundles.second, "uninstall", code=1)
    host.heteroflow("stop", job, "--wait", code=None)
    until("the task to end", lambda: uninstalled(host, bundles.second), WAIT_S)
    assert host.processes() == []
    left = {"/".join(name.split("/")[:3]) for name in host.files()}
    assert left == {"etc/heteroflow/agent.toml", "var/lib/heteroflow"}
    assert "left: nothing" in host.install(bundles.second, "uninstall", "--purge")
    assert host.files() == [] and list(host.root.iterdir()) == []
