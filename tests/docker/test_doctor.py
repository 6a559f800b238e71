"""The doctor and a real engine: what it says of it, and of one that hangs."""

import json
import socket
import subprocess
import sys
import threading

import pytest

from agentd.core.doctor.package_versions import RUNC_FLOOR, at_least
from tests.docker.engine import docker, engine_socket

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(180)]


def doctor(tmp_path, socket_path):
    """Check -> finding."""
    command = [sys.executable, "-m", "agentd.cli", "doctor", "--json", "--data-dir", str(tmp_path), "--gpus", "none"]
    command += ["--runtime", "docker", "--docker-socket", socket_path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    return ran.returncode, {finding["check"]: finding for finding in json.loads(ran.stdout)}


def test_a_real_one(tmp_path):
    _, seen = doctor(tmp_path, engine_socket())
    version = docker("version", "--format", "{{.Server.Version}}")
    assert seen["engine"]["state"] == "ok" and version in seen["engine"]["what"]
    assert seen["live-restore"]["state"] == "ok"
    # Debian's runc has a number below the floor, and the mend.
    number = docker(
        "version", "--format", '{{range .Server.Components}}{{if eq .Name "runc"}}{{.Version}}{{end}}{{end}}'
    )
    assert seen["runc"]["state"] == "ok"
    assert at_least(number, RUNC_FLOOR) or "mends of its distribution" in seen["runc"]["what"]


def test_one_that_takes_the_connection_and_says_nothing(tmp_path):
    path = str(tmp_path / "silent.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        held = []
        taker = threading.Thread(target=lambda: held.append(server.accept()), daemon=True)
        taker.start()
        code, seen = doctor(tmp_path, path)
        assert code == 1 and seen["engine"]["state"] == "fail" and "answer" in seen["engine"]["what"]
        assert seen["fsync"]["state"] != "fail" or seen["fsync"]["what"], "the other looks came back"
        for connection, _ in held:
            connection.close()
