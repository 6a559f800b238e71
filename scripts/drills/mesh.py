"""A loopback mesh whose parts a drill can kill, freeze and start again by name."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scripts.loopback_mesh import LoopbackMesh, MeshTrouble, processes_of

Part = Literal["guard", "agent", "voter", "shim", "task"]
POLL_S = 0.05


class DrillFailed(Exception):
    """Is raised when the mesh breaks a promise; the text says which."""


def until(what: str, true: Callable[[], Any], timeout_s: float, every_s: float = POLL_S) -> Any:
    """The first truthy answer of `true`. Raises DrillFailed when none came in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = true()
        except MeshTrouble:
            found = None
        if found:
            return found
        if time.monotonic() > deadline:
            raise DrillFailed(f"waited {timeout_s:g} s for {what}")
        time.sleep(every_s)


@dataclass
class DrillMesh(LoopbackMesh):
    restart: str = "always"
    environment: dict[str, str] = field(default_factory=dict)

    def _command(self, node: int) -> list[str]:
        command = super()._command(node)
        at = command.index("guard") + 1
        return [*command[:at], "--restart", self.restart, *command[at:]]

    def start(self) -> None:
        saved = dict(os.environ)
        os.environ.update(self.environment)
        try:
            super().start()
        finally:
            os.environ.clear()
            os.environ.update(saved)

    # -- parts

    def pids(self, node: int, *parts: Part) -> list[int]:
        mark = os.fsencode(self.data_dir(node))
        ours = [pid for pid in processes_of(self.directory) if _mentions(pid, mark)]
        return [pid for pid in ours if part_of(pid) in parts]

    def kill(self, node: int, *parts: Part, number: int = signal.SIGKILL) -> None:
        """All named parts as nearly at once as one process can."""
        for pid in self.pids(node, *parts):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    # -- views

    def any_api(self, *avoid: int) -> Any:
        node = next(node for node in range(1, self.nodes + 1) if node not in avoid)
        return self.api(node)

    def leader(self, *avoid: int) -> int | None:
        """The node that leads now, as a node outside `avoid` sees it."""
        consensus = self.any_api(*avoid).call("GET", "/mesh", timeout_s=3.0)
        by_raft_id = {voter["raft_id"]: voter["node"] for voter in consensus["voters"]}
        name = by_raft_id.get(consensus["consensus"]["leader"])
        return int(name.removeprefix("node-")) if name else None

    def group(self, group_id: str, *avoid: int) -> dict[str, Any]:
        shown: dict[str, Any] = self.any_api(*avoid).call("GET", f"/task-groups/{group_id}", timeout_s=5.0)
        return shown

    def places(self, group_id: str, *avoid: int) -> list[int]:
        return [int(name.removeprefix("node-")) for name in self.group(group_id, *avoid)["nodes"]]

    def submit(self, node: int, document: dict[str, Any], key: str, timeout_s: float = 5.0) -> dict[str, Any]:
        """One try. Raises MeshTrouble; a repeat with the same key is safe."""
        body = json.dumps(document).encode()
        headers = {
            "Authorization": f"Bearer {self.token_file.read_text().strip()}",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        }
        address = f"http://{self.address(node)}/api/v1/task-groups"
        request = urllib.request.Request(address, data=body, method="POST", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise MeshTrouble(f"submit: {error.code} {error.read().decode(errors='replace')}") from None
        except (OSError, ValueError) as error:
            raise MeshTrouble(f"submit to node-{node}: {error}") from error

    def follow(self, node: int, *arguments: str, into: Path) -> "subprocess.Popen[bytes]":
        """The real command line, attached to one node, writing to a file."""
        import sys

        command = [sys.executable, "-m", "console.cli.main", *arguments]
        command += ["--node", self.address(node), "--token-file", str(self.token_file)]
        with into.open("wb") as output, into.with_suffix(".err").open("wb") as errors:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)


def _mentions(pid: int, path: bytes) -> bool:
    """Whether an argument or variable of the process is the path or lies below it; node-1's token belongs to all."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes() + b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    words = words.replace(path + b"/token\0", b"")
    return path + b"/" in words or path + b"\0" in words


def part_of(pid: int) -> Part | None:
    """What a process of a node is, by its command line; every process that is none of ours is a task's."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        zombie = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return None
    if zombie:
        return None
    line = " ".join(arguments)
    if "agentd.cli guard" in line or "agentd/guard.py" in line or "agentd.guard" in line:
        return "guard"
    if "agentd.cli run" in line:
        return "agent"
    if "mesh.voter" in line:
        return "voter"
    if "agentd.shim" in line or "agentd/shim" in line:
        return "shim"
    return "task"
