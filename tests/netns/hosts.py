"""Hosts as network namespaces: an address of its own on one switch, and a file system root for what is installed.

The switch is a bridge in a namespace too, so nothing of this machine's network is touched. Commands of a host run in
its namespace with an environment that knows nothing of the checkout.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.loopback_mesh import processes_of
from tests.waiting import until

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
# Installers and agents of three hosts on two cores.
WAIT_S = 120.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@dataclass
class Host:
    """python: interpreter that installers on this host use."""

    name: str
    address: str
    namespace: str
    directory: Path
    python: str
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def data(self) -> Path:
        return self.root / "var" / "lib" / "heteroflow"

    def words(self, *command: object) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *map(str, command)]

    def run(self, *command: object, timeout_s: float = 120.0, code: int | None = 0) -> str:
        """What it said, stdout and stderr. code: what it must exit with; None: whatever."""
        ran = subprocess.run(
            self.words(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_ENVIRONMENT | {"PYTHON": self.python},
            cwd="/",
            timeout=timeout_s,
            check=False,
        )
        assert code is None or ran.returncode == code, f"{self.name}: {command} gave {ran.returncode}: {ran.stdout}"
        return ran.stdout

    def start(self, *command: object) -> subprocess.Popen[bytes]:
        """In a session of its own; ended with the host."""
        process = subprocess.Popen(
            self.words(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT | {"PYTHON": self.python},
            cwd="/",
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def install(self, bundle: Path, *words: object, code: int | None = 0) -> str:
        verb = [words[0]] if words and words[0] in ("upgrade", "uninstall") else []
        return self.run(bundle / "install.sh", *verb, "--root", self.root, *words[len(verb) :], code=code)

    def heteroflow(self, *words: object, code: int | None = 0) -> str:
        return self.run(self.root / "usr/local/bin/heteroflow", *words, "--data-dir", self.data, code=code)

    def agentd(self, *words: object) -> str:
        return self.run(self.root / "usr/local/bin/heteroflow-agentd", *words)

    def version(self) -> str:
        return os.readlink(self.root / "opt/heteroflow/current").removeprefix("versions/")

    def files(self) -> list[str]:
        """Below the root: directories that hold nothing, and files."""

        def counts(path: Path) -> bool:
            return path.is_symlink() or not path.is_dir() or not any(path.iterdir())

        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if counts(path))

    def processes(self) -> list[int]:
        return processes_of(self.root)

    def end(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        def gone() -> bool:
            left = self.processes()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        until(f"the processes of {self.name} to end", gone, 20.0)


@contextlib.contextmanager
def hosts(directory: Path, names: Sequence[str], python: str) -> Iterator[list[Host]]:
    """10.99.0.1 and on, /24, all on one switch."""
    mark = f"hf{os.getpid()}"
    switch = f"{mark}-switch"
    made: list[Host] = []
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(names, start=1):
            host = Host(name, f"10.99.0.{number}", f"{mark}-{name}", directory / name, python)
            (host.directory / "root").mkdir(parents=True)
            ip("netns", "add", host.namespace)
            made.append(host)
            ip("-n", host.namespace, "link", "set", "lo", "up")
            cable = ("link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", switch)
            ip("-n", host.namespace, *cable)
            ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
            ip("-n", host.namespace, "link", "set", "eth0", "up")
        yield made
    finally:
        for host in made:
            host.end()
        for namespace in (*(host.namespace for host in made), switch):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False, timeout=30)
