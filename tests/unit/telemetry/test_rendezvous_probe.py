"""Real processes that listen and connect, as /proc shows them."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count

import pytest

from agentd.core.frames import OUT
from agentd.core.rendezvous import RendezvousNow
from agentd.logs.writer import LogWriter
from agentd.runtime.base import TaskId
from agentd.telemetry.rendezvous_probe import RendezvousProbe, Wanted
from tests.free_port import free_port
from tests.waiting import until

TASK = TaskId("tg-1", 1, 1)
LISTEN = "import socket, time; s = socket.create_server(({host!r}, {port})); time.sleep(600)"
# Closes its port as soon as the peer has come, as programs do that gather their ranks once.
GATHER = (
    "import socket, time; s = socket.create_server(({host!r}, {port})); peer = s.accept()[0]; s.close(); "
    "time.sleep(600)"
)
CONNECT = "import socket, time; s = socket.create_connection(({host!r}, {port})); time.sleep(600)"
# As a launcher does: the connection is the child's.
BELOW = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], env=dict(os.environ, **{env!r}))"
IDLE = "import time; time.sleep(600)"


@pytest.fixture
def run():
    started = []

    def start(code: str) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", code], start_new_session=True))
        return started[-1].pid

    yield start
    for process in started:
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=False)
        process.wait()


def connected_to(port: int) -> socket.socket:
    made: socket.socket = until(f"a listener at {port}", lambda: socket.create_connection(("127.0.0.1", port)))
    return made


def is_listening(port: int) -> bool:
    with open("/proc/net/tcp", encoding="ascii") as file:
        return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in file)


def seen(probe: RendezvousProbe, wanted: Wanted, is_it: Callable[[RendezvousNow], bool]) -> RendezvousNow:
    """Looks with a clock of its own, by which every look is due."""
    looks = count(1)

    def look() -> RendezvousNow:
        found = probe.look({TASK: wanted}, next(looks) * 100.0)[TASK]
        assert is_it(found), found
        return found

    found: RendezvousNow = until("the probe to see it", look)
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_who_listens_and_who_connects(run, host):
    try:
        port = free_port(host)
    except OSError:
        pytest.skip(f"{host} is not there")
    code = LISTEN.format(host=host, port=port)
    if ":" in host:
        code = code.replace(f"{port}))", f"{port}), family=socket.AF_INET6)")
    first = seen(RendezvousProbe(), Wanted(run(code), host, port), lambda now: bool(now.listens))
    assert not first.connected and first.place == (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    idle = seen(RendezvousProbe(), Wanted(run(IDLE), host, port), lambda now: True)
    assert (idle.listens, idle.connected, idle.processes) == (False, False, None)
    second = seen(RendezvousProbe(), Wanted(run(CONNECT.format(host=host, port=port)), host, port), _connected)
    assert not second.listens


def test_a_port_that_was_closed_again_before_the_first_look_was_open(run):
    port = free_port()
    first = Wanted(run(GATHER.format(host="127.0.0.1", port=port)), "127.0.0.1", port)
    # Not with a probe, whose first look has to be one after the port was closed.
    peer = connected_to(port)
    try:
        while is_listening(port):
            time.sleep(0.01)
        found = RendezvousProbe().look({TASK: first}, 0.0)[TASK]
        assert found.listens and not found.connected
    finally:
        peer.close()


def test_an_address_of_another_machine_does_not_count(run):
    """A node that is its own master connects to the same port, at home."""
    port = free_port()
    own = run(LISTEN.format(host="127.0.0.1", port=port))
    seen(RendezvousProbe(), Wanted(own, "127.0.0.1", port), lambda now: bool(now.listens))
    peer = run(CONNECT.format(host="127.0.0.1", port=port))
    seen(RendezvousProbe(), Wanted(peer, "127.0.0.1", port), _connected)
    elsewhere = RendezvousProbe().look({TASK: Wanted(peer, "10.1.2.3", port)}, 0.0)[TASK]
    assert not elsewhere.connected


def test_what_launchers_tell_their_processes(run):
    port = free_port()
    seen(
        RendezvousProbe(),
        Wanted(run(LISTEN.format(host="127.0.0.1", port=port)), "127.0.0.1", port),
        lambda now: bool(now.listens),
    )
    env = {"RANK": "3", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"}
    probe = RendezvousProbe()
    inside = Wanted(run(BELOW.format(code=CONNECT.format(host="127.0.0.1", port=port), env=env)), "127.0.0.1", port)
    found = seen(probe, inside, lambda now: now.processes is not None and now.processes.outside is None)
    assert found.processes is not None and found.processes.gathered and found.connected
    assert (found.processes.lowest, found.processes.world, found.processes.inside) == (3, 4, 1)
    # Seen once holds: the launcher may close what it needs no more.
    subprocess.run(["kill", "-9", "--", f"-{inside.pid}"], check=True)
    assert probe.look({TASK: inside}, 1e6)[TASK].processes == found.processes

    env = {"PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:2"}
    outside = Wanted(run(BELOW.format(code=IDLE, env=env)), "127.0.0.1", port)
    paddle = seen(RendezvousProbe(), outside, lambda now: now.processes is not None).processes
    assert paddle is not None
    assert (paddle.lowest, paddle.world, paddle.outside, paddle.gathered) == (0, 2, 0, True)
    only_size = Wanted(run(BELOW.format(code=IDLE, env={"WORLD_SIZE": "2"})), "127.0.0.1", port)
    assert RendezvousProbe().look({TASK: only_size}, 0.0)[TASK].processes is None


def test_a_name_is_resolved_and_one_that_is_none_is_nowhere(run):
    port = free_port()
    seen(
        RendezvousProbe(),
        Wanted(run(LISTEN.format(host="127.0.0.1", port=port)), "localhost", port),
        lambda now: bool(now.listens),
    )
    seen(RendezvousProbe(), Wanted(run(CONNECT.format(host="127.0.0.1", port=port)), "localhost", port), _connected)
    lost = RendezvousProbe().look({TASK: Wanted(run(IDLE), "no-such-host.invalid", port)}, 0.0)[TASK]
    assert not lost.connected


def test_a_known_line_counts_more_than_what_the_launcher_said(run, tmp_path):
    """Lightning with num_nodes=1 under a launcher of two nodes: each node is its own RANK 0."""
    env = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    wanted = Wanted(run(BELOW.format(code=IDLE, env=env)), "127.0.0.1", free_port())
    probe = RendezvousProbe(lambda _: str(tmp_path))
    told = seen(probe, wanted, lambda now: now.processes is not None).processes
    assert told is not None and (told.lowest, told.world) == (1, 2)
    line = b"Epoch 0\nInitializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1\n"
    LogWriter(str(tmp_path), 1 << 20, 8).append(OUT, line, 1)
    said = seen(probe, wanted, lambda now: now.processes is not None and now.processes.world == 1).processes
    assert said is not None and (said.lowest, said.outside) == (0, 1)
    assert probe.look({}, 1e9) == {}


def test_a_task_that_is_gone_is_forgotten_and_seldom_looked_at(run):
    probe, port = RendezvousProbe(), free_port()
    wanted = Wanted(run(IDLE), "127.0.0.1", port)
    assert probe.look({TASK: wanted}, 0.0)[TASK].watched_s == 0.0
    assert probe.look({TASK: wanted}, 700.0)[TASK].watched_s == 700.0
    assert probe.look({}, 701.0) == {} and probe.look({TASK: wanted}, 702.0)[TASK].watched_s == 0.0


def _connected(now: RendezvousNow) -> bool:
    return bool(now.connected)
