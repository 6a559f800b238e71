"""Outside parts that some tests need: is it here, and how to get it.

A test says `@pytest.mark.need("go")` or calls `need("go")`. Without the part it is skipped, with a reason that says
how to get it; under `REQUIRE=go,etcd` that skip fails the run.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.frameworks_run import KINDS, is_made
from tests.docker.engine import engine_possible, torch_environment

GOPATH_SOURCES = Path("/usr/share/gocode/src/go.etcd.io/etcd")


def namespaces_possible() -> bool:
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    try:
        return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@dataclass(frozen=True)
class Part:
    title: str
    how: str
    present: Callable[[], bool]


PARTS = {
    "go": Part(
        "Go with the sources of etcd's raft library",
        "apt-get install golang-go golang-etcd-server-dev",
        lambda: shutil.which("go") is not None and GOPATH_SOURCES.is_dir(),
    ),
    "etcd": Part("the etcd server", "apt-get install etcd-server", lambda: shutil.which("etcd") is not None),
    "docker": Part(
        "a Docker engine that may be started by hand (root)",
        "apt-get install docker.io busybox-static",
        engine_possible,
    ),
    "torch": Part(
        "a virtual environment with PyTorch",
        "python3 -m venv /var/tmp/heteroflow-torch && /var/tmp/heteroflow-torch/bin/pip install torch==2.13.0; "
        "HETEROFLOW_TORCH names another place",
        lambda: torch_environment() is not None,
    ),
    "accelerate": Part(
        "an environment with Accelerate beside that torch",
        "./scripts/frameworks --make accelerate",
        lambda: torch_environment() is not None and is_made(KINDS["accelerate"]),
    ),
    "netns": Part(
        "network namespaces (root, iproute2)",
        "apt-get install iproute2, and run as root",
        namespaces_possible,
    ),
    "systemd": Part("systemd-analyze", "apt-get install systemd", lambda: shutil.which("systemd-analyze") is not None),
    "tmux": Part("the tmux terminal multiplexer", "apt-get install tmux", lambda: shutil.which("tmux") is not None),
}


def missing(name: str) -> str:
    """Why the part cannot be used and how to get it, or ''."""
    part = PARTS[name]
    return "" if part.present() else f"needs {name}: {part.title} is not installed ({part.how})"


def need(name: str) -> None:
    why = missing(name)
    if why:
        pytest.skip(why)


def required() -> list[str]:
    return [name.strip() for name in os.environ.get("REQUIRE", "").split(",") if name.strip()]


def forbidden_skips(reasons: list[str]) -> list[str]:
    """The skip reasons that name a required part, whoever wrote them."""
    names = required()
    return [reason for reason in reasons if any(re.search(rf"\b{re.escape(name)}\b", reason, re.I) for name in names)]
