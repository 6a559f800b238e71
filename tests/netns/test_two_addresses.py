"""Hosts with two addresses: the private one of rank 0's host is another machine's where the other host looks, and the
gang meets at the one that both reach."""

import json
import sys
from pathlib import Path

import pytest

from tests.netns.conftest import PYTHON
from tests.netns.hosts import WAIT_S, hosts, ip
from tests.waiting import until

pytestmark = [pytest.mark.need("netns"), pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
TRAINER = ROOT / "scripts" / "examples" / "train_numpy.py"
PRIVATE = "192.168.7.1"
# A machine that answers at every port a group could be given, and knows nothing of groups.
ANSWERS = f"""
import resource, selectors, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, 20_000))
waits = selectors.DefaultSelector()
for port in range(20_000, 30_000):
    waits.register(socket.create_server(({PRIVATE!r}, port)), selectors.EVENT_READ)
print("listens", flush=True)
while True:
    for key, _ in waits.select():
        other, _ = key.fileobj.accept()
        other.sendall(b"220 smtp.example ESMTP\\n")
        other.close()
"""


@pytest.fixture
def three(place):
    with hosts(place, ["a", "b", "c"], PYTHON) as made:
        yield made


def command(host, module, *words):
    return host.words("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module, *words)[4:]


def agent(host, *words):
    shared = ("--gpus", "simulated:1xH100", "--profile", "fast", "--name", host.name, "--data-dir", host.data)
    places = ("--api", f"{host.address}:7460", "--voter", f"{host.address}:7461")
    host.start(*command(host, "agentd.cli", "guard", *shared, *places, *words))


def heteroflow(host, *words):
    return host.run(*command(host, "console.cli.main", *words, "--data-dir", host.data))


def test_the_address_that_all_reach_is_the_one_that_is_taken(three, tmp_path):
    a, b, c = three
    # Of a wire of its own, which leads nowhere; the same address on the common wire is another machine's.
    ip("-n", a.namespace, "link", "add", "priv0", "type", "veth", "peer", "name", "priv1")
    ip("-n", a.namespace, "addr", "add", f"{PRIVATE}/24", "dev", "priv0")
    ip("-n", a.namespace, "link", "set", "priv0", "up")
    ip("-n", c.namespace, "addr", "add", f"{PRIVATE}/24", "dev", "eth0")
    ip("-n", b.namespace, "addr", "add", "192.168.7.2/24", "dev", "eth0")
    c.start(sys.executable, "-c", ANSWERS)

    allowed = ("--allow-path", str(tmp_path))
    for host in (a, b):
        host.data.mkdir(parents=True)
    agent(a, "--bootstrap", *allowed, "--rendezvous-address", PRIVATE, "--rendezvous-address", a.address)
    token = tmp_path / "token"
    until("the first agent", lambda: (a.data / "ca" / "ca.pem").exists(), WAIT_S)
    a.run(*command(a, "agentd.cli", "token", "create", "--data-dir", a.data, "--out", token))
    agent(b, "--join", f"{a.address}:7460", "--token-file", token, *allowed)

    def ready():
        shown = a.run(*command(a, "console.cli.main", "nodes", "-o", "json", "--data-dir", a.data), code=None)
        nodes = json.loads(shown)["nodes"] if shown.startswith("{") else []
        return {node["node_id"]: node["addresses"] for node in nodes if node["state"] == "ready"}

    until("two nodes to be ready", lambda: len(ready()) == 2, WAIT_S)
    assert ready()["a"] == [PRIVATE, a.address]
    assert set(ready()["b"]) == {b.address, "192.168.7.2"}, "those of its interfaces, where nobody said any"
    probe = f"import socket; print(socket.create_connection(({PRIVATE!r}, 20_000), 5).recv(99))"
    assert "smtp" in b.run(sys.executable, "-c", probe)

    shown = f'echo "at $MASTER_ADDR by $GLOO_SOCKET_IFNAME, $NCCL_SOCKET_IFNAME"; exec {sys.executable} {TRAINER}'
    document = {
        "name": "two-addresses",
        "task_type": "training",
        "training": {
            "framework": "ddp",
            "launcher": "script",
            "n_nodes": 2,
            "per_node_gpu": 1,
            "checkpoint_path": str(tmp_path / "job"),
            "hyper_params": {"steps": "20"},
        },
        "task": {"command": shown, "gpu_required": 1, "stop_grace_s": 1},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document))
    job = heteroflow(a, "submit", path).split()[-1]
    until("the gang to end", lambda: '"status": "completed"' in heteroflow(b, "show", job, "-o", "json"), WAIT_S)
    group = json.loads(heteroflow(b, "show", job, "-o", "json"))
    assert (group["nodes"], group["master"]["addr"]) == (["a", "b"], a.address)
    assert f"rank 1 on b: {PRIVATE} is another machine, which does not know this group" in heteroflow(b, "events", job)
    said = [line for line in heteroflow(b, "logs", job).splitlines() if " by eth0" in line]
    assert len(said) == 2 and all(f"at {a.address} by eth0, =eth0" in line for line in said), said
