"""The container engine by its own API, and what the distribution says of its parts."""

import asyncio
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

from agentd.core.doctor.facts import EngineFacts, Setup

_ASK_S = 6.0
_PACKAGES = ("runc", "containerd", "containerd.io", "docker.io", "docker-ce", "nvidia-container-toolkit")


def look_at_engine(setup: Setup) -> EngineFacts:
    facts: EngineFacts = {
        "error": "",
        "version": "",
        "live_restore": False,
        "components": {},
        "runtimes": [],
        "packages": _packages(),
        "release": _release(),
        "toolkit": _said("nvidia-ctk", "--version"),
        "socket_mode": _mode(setup["docker_socket"]),
    }
    if setup["runtime"] != "docker":
        return facts
    version, info, facts["error"] = asyncio.run(_ask(setup["docker_socket"]))
    facts["version"] = str(version.get("Version", ""))
    facts["live_restore"] = bool(info.get("LiveRestoreEnabled"))
    facts["runtimes"] = sorted(info.get("Runtimes") or {})
    facts["components"] = {
        str(part.get("Name", "")): str(part.get("Version", "")) for part in version.get("Components") or ()
    }
    return facts


async def _ask(socket_path: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    # Here: a look at a host without containers does not pay for the engine's client.
    from agentd.runtime.docker.engine import Engine, EngineTrouble

    engine = Engine(socket_path)
    try:
        version = await engine.call(_ASK_S, lambda api: api.version())
        return version, await engine.call(_ASK_S, lambda api: api.info()), ""
    except EngineTrouble as error:
        return {}, {}, str(error)


def _mode(path: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def _release() -> list[str]:
    """`[id, version]` of the distribution, empty words where it does not say."""
    said = {}
    try:
        for line in Path("/etc/os-release").read_text().splitlines():
            key, _, value = line.partition("=")
            said[key] = value.strip("\"'")
    except OSError:
        return ["", ""]
    return [said.get("ID", ""), said.get("VERSION_ID", "")]


def _packages() -> dict[str, str]:
    if shutil.which("dpkg-query"):
        said = _said("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev} ${Version}\n", *_PACKAGES)
        rows = [line.split() for line in said.splitlines()]
        return {row[0]: row[2] for row in rows if len(row) == 3 and row[1].startswith("ii")}
    if shutil.which("rpm"):
        said = _said("rpm", "-q", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n", *_PACKAGES)
        return dict(line.split() for line in said.splitlines() if len(line.split()) == 2)
    return {}


def _said(*command: str) -> str:
    """Whatever it exits with: of several packages some may be missing. Empty where there is no such program."""
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout
