"""The Docker engine of the tests: a second one beside the machine's, made by scripts/docker_engine.sh on first use."""

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

IMAGE = "heteroflow-test:busybox"
TORCH_IMAGE = "heteroflow-test:torch"
_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "docker_engine.sh"


def engine_possible() -> bool:
    tools = all(shutil.which(tool) for tool in ("dockerd", "docker", "busybox"))
    return os.geteuid() == 0 and tools and importlib.util.find_spec("docker") is not None


def torch_environment() -> Path | None:
    """Apart from the one that tests run in: it is 750 MB, and nothing of ours imports torch."""
    path = Path(os.environ.get("HETEROFLOW_TORCH", "/var/tmp/heteroflow-torch"))
    return path if (path / "bin" / "torchrun").is_file() else None


@functools.cache
def engine_socket() -> str:
    """Starts the engine where it does not run; its unix socket."""
    return _script("start")


@functools.cache
def torch_engine_socket() -> str:
    """The same, with an image that has torch in it."""
    return _script("torch", str(torch_environment()))


def _script(*words: str) -> str:
    done = subprocess.run([str(_SCRIPT), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def engine_down() -> None:
    """SIGKILL; its containers run on."""
    subprocess.run([str(_SCRIPT), "kill"], check=True, timeout=30)


def engine_up() -> None:
    engine_socket.cache_clear()
    engine_socket()


def docker(*words: str) -> str:
    """The command line's answer, for what a test must know without our own client."""
    command = ["docker", "--host", f"unix://{engine_socket()}", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def remove_containers(label: str) -> None:
    left = docker("ps", "--all", "--quiet", "--filter", f"label={label}").split()
    if left:
        docker("rm", "--force", *left)


def engine_pid() -> int:
    return int((Path(engine_socket()).parent / "docker.pid").read_text())
