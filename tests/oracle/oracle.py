"""Build and talk to the Go driver around etcd's raft library. Needs Debian's golang-go and golang-etcd-server-dev."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

DRIVER = Path(__file__).parent / "driver"
GOCODE = Path(os.environ.get("GOCODE", "/usr/share/gocode"))
RAFT = GOCODE / "src/go.etcd.io/etcd/raft"


def missing() -> str:
    """What is not installed, as a sentence; empty if the oracle can be built."""
    if shutil.which("go") is None:
        return "go is not installed (Debian: apt install golang-go golang-etcd-server-dev)"
    if not (RAFT / "rawnode.go").exists():
        return f"etcd's raft library is not in {RAFT} (Debian: apt install golang-etcd-server-dev)"
    return ""


def build() -> Path:
    """Build the driver once per content, some 6 s the first time. Safe when several processes call it at once."""
    sources = sorted(DRIVER.rglob("*.go"))
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources) + str(GOCODE).encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir()) / f"hf-raft-oracle-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise RuntimeError(f"{home} belongs to someone else")
    binary = home / digest
    if binary.exists():
        return binary
    work = Path(tempfile.mkdtemp(dir=home))
    try:
        # The overlay makes the hook appear inside etcd's package without touching the installed files.
        overlay = work / "overlay.json"
        overlay.write_text(json.dumps({"Replace": {str(RAFT / "oracle_hook.go"): str(DRIVER / "hook/hook.go")}}))
        env = {**os.environ, "GO111MODULE": "off", "GOPATH": str(GOCODE), "GOFLAGS": "", "GOCACHE": str(home / "cache")}
        command = ["go", "build", "-overlay", str(overlay), "-o", str(work / "oracle"), "."]
        done = subprocess.run(command, cwd=DRIVER, env=env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the oracle does not build:\n{done.stderr}")
        os.replace(work / "oracle", binary)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return binary


class Oracle:
    """One driver process, used for many runs. Commands are written ahead of reading the answers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([str(build())], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def submit(self, commands: list[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(c + "\n" for c in commands).encode())
        self._process.stdin.flush()

    def answers(self, count: int) -> list[str]:
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(count)]
        if count and not lines[-1].endswith(b"\n"):
            raise RuntimeError("the oracle died")
        return [line[:-1].decode() for line in lines]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=10)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
