"""What somebody who looks for a fault needs of this host, without what is secret: bounded, made without the mesh."""

import asyncio
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentd.config import AgentConfig
from agentd.data_dir import DataDir
from agentd.node_facts import version
from schemas.instants import iso_utc
from schemas.rules.redaction import redact, redact_text

# Of each log its end: what happened lately is what is looked for, and a bundle of a thousand hosts must be sent.
LOG_TAIL_BYTES, LOG_TAIL_MAX = 256 * 1024, 2 << 20
_LOGS = ("agent.log", "voter.log", "guard.log")
_LINE_MAX = 16 * 1024
_FACTS_S = 10.0


class DebugReport:
    """health: facts of /healthz. secrets: what is known to be secret here now; it is taken out wherever it stands."""

    def __init__(
        self,
        config: AgentConfig,
        data: DataDir,
        node_id: str,
        health: Callable[[], dict[str, Any]],
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        self._config, self._data, self._node_id = config, data, node_id
        self._health, self._secrets = health, secrets

    async def make(self, log_bytes: int = LOG_TAIL_BYTES) -> dict[str, Any]:
        """{node_id, at, versions, config, health, host, logs{name: text}}; `host` says so where a disk does not
        answer."""
        secrets = sorted({secret for secret in self._secrets() if secret}, key=len, reverse=True)
        report = {
            "node_id": self._node_id,
            "at": iso_utc(time.time_ns() // 1_000_000),
            "versions": _versions(),
            "config": _plain(asdict(self._config)),
            "health": self._health(),
        }
        shown: dict[str, Any] = redact(report, secrets)
        for name, look in (("host", self._host), ("logs", lambda: self._tails(log_bytes, secrets))):
            try:
                async with asyncio.timeout(_FACTS_S):
                    shown[name] = await asyncio.to_thread(look)
            except (OSError, TimeoutError) as error:
                shown[name] = {"problem": f"this could not be read: {error or 'a disk does not answer'}"}
        return shown

    def _host(self) -> dict[str, Any]:
        usage = shutil.disk_usage(self._data.root)
        return {
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "load": [round(value, 2) for value in os.getloadavg()],
            "memory": _meminfo(),
            "data_dir": {"total_mb": usage.total >> 20, "free_mb": usage.free >> 20},
            "files": self._files(),
            "open_files": len(os.listdir("/proc/self/fd")),
        }

    def _files(self) -> dict[str, int]:
        """Sizes in bytes: of databases and logs, never of keys or tasks."""
        paths = [*self._data.voter_dir.glob("*.db*"), *self._data.log_dir.glob("*.log*")]
        paths.append(self._data.root / "telemetry.db")
        return {str(path.relative_to(self._data.root)): path.stat().st_size for path in sorted(paths) if path.is_file()}

    def _tails(self, most: int, secrets: list[str]) -> dict[str, str]:
        return {
            name: _tail(self._data.log_dir / name, most, secrets)
            for name in _LOGS
            if (self._data.log_dir / name).is_file()
        }


def _versions() -> dict[str, str]:
    return {"heteroflow": version(), "python": platform.python_version(), "system": platform.platform()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _meminfo() -> dict[str, int]:
    wanted = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    text = Path("/proc/meminfo").read_text()
    rows = (line.partition(":") for line in text.splitlines())
    return {f"{name}_kb": int(value.split()[0]) for name, _, value in rows if name in wanted}


def _tail(path: Path, most: int, secrets: list[str]) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - most, 0))
        raw = file.read(most)
    if size > most:
        raw = raw.partition(b"\n")[2]  # a line that was cut is half a secret that nobody would know
    lines = raw.decode("utf-8", "replace").splitlines()
    return "".join(f"{_line(line[:_LINE_MAX], secrets)}\n" for line in lines)


def _line(line: str, secrets: list[str]) -> str:
    """Of JSON also what stands under a name that sounds secret."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    return json.dumps(redact(value, secrets)) if isinstance(value, dict) else redact_text(line, secrets)
