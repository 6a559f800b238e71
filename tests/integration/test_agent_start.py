"""Founding, joining and refusing: each refusal by its exit code, with what, where and what to do, and nothing half
made."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from scripts.loopback_mesh import free_network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Host:
    """One agent without a guard, for what happens at its start."""

    def __init__(self, tmp_path, prefix, number):
        self.data = tmp_path / f"n{number}"
        self.flags = {
            "--data-dir": str(self.data),
            "--name": f"n{number}",
            "--api": f"{prefix}{number}:7460",
            "--voter": f"{prefix}{number}:7461",
            "--gpus": "simulated:1xH100",
        }
        self.process = None
        self._before = 0

    def run(self, *extra, verb="run", **changed):
        flags = self.flags | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
        self._before = len(self._lines())
        words = [word for pair in flags.items() for word in pair]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentd.cli", verb, *words, *extra],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def ends(self, within_s=15):
        """(exit code, its last words)."""
        _, said = self.process.communicate(timeout=within_s)
        plain = [line for line in said.splitlines() if line.startswith("heteroflow-agentd:")]
        return self.process.returncode, plain[-1] if plain else said

    def _lines(self):
        path = self.data / "log" / "agent.log"
        return path.read_text().splitlines() if path.exists() else []

    def log(self):
        """Of the last start."""
        return [json.loads(line) for line in self._lines()[self._before :]]

    def said(self, words):
        return any(words in line["message"] for line in self.log())

    def awaits(self, words, within_s=60):
        deadline = time.monotonic() + within_s
        while not self.said(words):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline, [line["message"] for line in self.log()]
            time.sleep(0.05)

    def kill(self, number=signal.SIGKILL):
        if self.process is not None:
            self.process.send_signal(number)
            self.process.communicate(timeout=15)


@pytest.fixture
def hosts(tmp_path):
    prefix = free_network()
    made = {}

    def host(number):
        return made.setdefault(number, Host(tmp_path, prefix, number))

    yield host
    for one in made.values():
        with contextlib.suppress(OSError, ValueError):
            one.kill()


def test_a_new_directory_needs_a_word(hosts):
    code, said = hosts(1).run().ends()
    assert code == 2 and "--bootstrap" in said and "--join" in said


def test_one_node_founds_its_mesh_once(hosts):
    host = hosts(1)
    host.run("--bootstrap").awaits("ready")
    token = host.data / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600 and stat.S_IMODE(host.data.stat().st_mode) == 0o700
    assert token.read_text().strip() not in (host.data / "log" / "agent.log").read_text()
    founding = (host.data / "founding.json").read_text()
    host.kill()
    host.run("--bootstrap").awaits("ready")
    host.kill(signal.SIGTERM)
    assert host.process.returncode == 0 and (host.data / "founding.json").read_text() == founding


def test_a_directory_in_use(hosts):
    host = hosts(1)
    host.run("--bootstrap").awaits("listening")
    first, pid = host.process, host.process.pid
    code, said = host.run("--bootstrap", api="127.0.0.9:7470", voter="127.0.0.9:7471").ends()
    host.process = first
    assert code == 3 and str(pid) in said and str(host.data) in said


def test_a_directory_of_a_newer_version(hosts):
    host = hosts(1)
    host.data.mkdir()
    (host.data / "node.json").write_text('{"format": 2, "node_id": "n1", "uid": "x"}')
    code, said = host.run("--bootstrap").ends()
    assert code == 3 and "format 2" in said
    assert json.loads((host.data / "node.json").read_text())["format"] == 2


def test_a_directory_under_another_name(hosts):
    host = hosts(1)
    host.run("--bootstrap").awaits("listening")
    host.kill()
    code, said = host.run("--bootstrap", name="other").ends()
    assert code == 3 and "belongs to node n1" in said


@pytest.mark.parametrize("which", ["api", "voter"])
def test_a_port_in_use(hosts, which):
    host = hosts(1)
    address, port = host.flags[f"--{which}"].split(":")
    with socket.create_server((address, int(port))):
        code, said = host.run("--bootstrap").ends(within_s=30)
    assert code == 4 and port in said


@pytest.mark.attack(45)
def test_a_token_others_can_read(hosts):
    founder, joiner = hosts(1), hosts(2)
    founder.run("--bootstrap").awaits("ready")
    leaked = founder.data.parent / "token"
    leaked.write_text((founder.data / "token").read_text())
    leaked.chmod(0o644)
    code, said = joiner.run("--join", founder.flags["--api"], "--token-file", str(leaked)).ends()
    assert code == 3 and "chmod 600" in said and not (joiner.data / "token").exists()


def test_a_wrong_token(hosts):
    founder, joiner = hosts(1), hosts(2)
    founder.run("--bootstrap").awaits("ready")
    wrong = founder.data.parent / "token"
    wrong.write_text("x" * 43)
    wrong.chmod(0o600)
    code, said = joiner.run("--join", founder.flags["--api"], "--token-file", str(wrong)).ends()
    assert code == 2 and "401" in said and not (joiner.data / "founding.json").exists()


@pytest.mark.attack(45)
def test_no_token(hosts):
    code, said = hosts(2).run("--join", "127.0.0.1:1").ends()
    assert code == 2 and "--token-file" in said


def test_nobody_at_the_join_address(hosts):
    """It says so once and goes on asking; when the founder comes, it joins."""
    founder, joiner = hosts(1), hosts(2)
    founder.run("--bootstrap").awaits("ready")
    founder.kill()
    joiner.run("--join", founder.flags["--api"], "--token-file", str(founder.data / "token")).awaits("no agent answers")
    time.sleep(2)  # long enough for many tries
    assert len([line for line in joiner.log() if "no agent answers" in line["message"]]) == 1
    founder.run("--bootstrap")
    joiner.awaits("ready")
    assert json.loads((joiner.data / "node.json").read_text())["role"] == "member"


def test_a_name_that_is_taken(hosts):
    founder, joiner, third = hosts(1), hosts(2), hosts(3)
    founder.run("--bootstrap").awaits("ready")
    join = ("--join", founder.flags["--api"], "--token-file", str(founder.data / "token"))
    for name in ("n1", "n2"):
        if name == "n2":
            joiner.run(*join).awaits("ready")
        code, said = third.run(*join, name=name, data_dir=str(third.data) + name).ends()
        assert code == 2 and name in said and "--name" in said


def test_another_mesh(hosts):
    ours, theirs, joiner = hosts(1), hosts(2), hosts(3)
    ours.run("--bootstrap").awaits("ready")
    theirs.run("--bootstrap").awaits("ready")
    join = ("--join", ours.flags["--api"], "--token-file", str(ours.data / "token"))
    joiner.run(*join).awaits("ready")
    joiner.kill()
    code, said = joiner.run("--join", theirs.flags["--api"], "--token-file", str(theirs.data / "token")).ends()
    assert code == 3 and "another mesh" in said
    code, said = joiner.run("--bootstrap").ends()
    assert code == 3 and "second mesh" in said
    joiner.run(*join).awaits("ready")


def test_three_voters_wait_for_one_another_and_freeze_one_roster(hosts):
    one, two, three = hosts(1), hosts(2), hosts(3)
    one.run("--bootstrap", "--voters", "3", "--profile", "fast").awaits("listening")
    join = ("--join", one.flags["--api"], "--token-file", str(one.data / "token"))
    two.run(*join).awaits("2 of 3")
    assert not (one.data / "founding.json").exists() and not (one.data / "voter" / "log.db").exists()
    one.kill()  # before the freeze nothing is promised
    one.run("--bootstrap", "--voters", "3", "--profile", "fast").awaits("listening")
    three.run(*join)
    for host in (one, two, three):
        host.awaits("ready", within_s=25)
    rosters = {(host.data / "voter" / "roster.json").read_text() for host in (one, two, three)}
    assert len(rosters) == 1
    ids = {voter["raft_id"] for voter in json.loads(rosters.pop())["voters"]}
    assert len(ids) == 3 and all(0 < raft_id < 1 << 48 for raft_id in ids)


def test_a_damaged_log_is_said_and_not_served(hosts):
    host = hosts(1)
    host.run("--bootstrap").awaits("ready")
    host.kill(signal.SIGTERM)
    log = host.data / "voter" / "log.db"
    raw = bytearray(log.read_bytes())
    for at in range(len(raw) // 2, len(raw), 97):
        raw[at] ^= 0xFF
    log.write_bytes(raw)
    code, said = host.run("--bootstrap").ends(within_s=30)
    assert code == 5 and said, (code, said)


def test_the_lock_is_the_agent_s_own_and_not_its_children_s(hosts):
    """A voter or shim that outlived the agent must not keep the directory locked."""
    host = hosts(1)
    host.run("--bootstrap").awaits("ready")
    os.kill(host.process.pid, signal.SIGKILL)
    host.process.wait()
    with (host.data / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_guard_does_not_insist_on_what_cannot_work(hosts):
    """Its agent's refusal is its own: the same code and the same words, at once."""
    host = hosts(1)
    host.data.mkdir()
    (host.data / "node.json").write_text('{"format": 2, "node_id": "n1", "uid": "x"}')
    code, said = host.run("--bootstrap", verb="guard").ends()
    assert code == 3 and "format 2" in said
    code, said = host.run("--bootstrap", verb="guard", api="0.0.0.0:7460").ends()
    assert code == 2 and "--advertise HOST" in said
