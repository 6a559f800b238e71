"""The running agent of an installation as its files and its own word show it."""

import fcntl
import http.client
import json
import os
import ssl
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.installer.places import Places

# As in schemas/limits.py, which is not there before anything is installed.
T_STOP_S = {"fast": 9.0, "lan": 40.0, "wan": 90.0}
_DEFAULT_API = "127.0.0.1:7460"


@dataclass(frozen=True, slots=True)
class Health:
    """pid: of the agent; 0 where none runs."""

    pid: int
    status: str
    reasons: tuple[str, ...]


def guard_pid(places: Places) -> int:
    """0 where none runs."""
    return _holder(places.data / "guard.lock")


def _holder(lock: Path) -> int:
    """The lock goes with its process, whatever the file says."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return 0
    except BlockingIOError:
        return int(os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or 0)
    finally:
        os.close(descriptor)


def version_of_process(places: Places, pid: int) -> str:
    """The version that a guard was started from; empty where that cannot be told."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    versions = f"{places.versions}/"
    return next((word.removeprefix(versions).partition("/")[0] for word in words if word.startswith(versions)), "")


def settings(places: Places) -> dict[str, Any]:
    """Of the configuration file; empty where there is none that can be read."""
    try:
        return tomllib.loads(places.config.read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return {}


def health(places: Places) -> Health:
    """Takes 2 s at most."""
    agent = _holder(places.data / "lock")
    if not agent:
        return Health(0, "silent", ("no agent runs",))
    scheme = "https" if (places.data / "tls" / "ca.pem").exists() else "http"
    # Only to hear how it is, at an address of this host: the certificate is of no matter here.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting))
    try:
        with opener.open(f"{scheme}://{settings(places).get('api', _DEFAULT_API)}/healthz", timeout=2) as answer:
            said = json.loads(answer.read(65536))
            return Health(agent, str(said["status"]), tuple(said.get("reasons", ())))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        return Health(agent, "silent", (f"its API does not answer ({error})",))


def guard_log_size(places: Places) -> int:
    try:
        return (places.data / "log" / "guard.log").stat().st_size
    except OSError:
        return 0


def gave_up(places: Places, since: int) -> bool:
    """Whether the agent keeps ending: three times since the guard's log was that long, or once for good."""
    try:
        with (places.data / "log" / "guard.log").open("rb") as log:
            log.seek(since if since <= guard_log_size(places) else 0)
            said = log.read()
    except OSError:
        return False
    return said.count(b"agent ended with code") >= 3 or b", no restart" in said


def stop_after_s(places: Places) -> float:
    """How long tasks of this host outlive an agent that renews no lease: T_stop of the mesh's profile."""
    try:
        profile = json.loads((places.data / "founding.json").read_text())["profile"]
    except (OSError, ValueError, KeyError, TypeError):
        profile = ""
    return T_STOP_S.get(profile, T_STOP_S["lan"])


def is_member(places: Places) -> bool:
    """Whether this host knows its mesh: from then on its settings of joining are history."""
    return (places.data / "founding.json").is_file()


def living_tasks(places: Places) -> list[str]:
    """Tasks whose shim or first process is alive: `group/attempt/rank`."""
    found = []
    for path in sorted(places.data.glob("tasks/*/*/*/pid.json")):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        pairs = ((record.get("shim_pid"), record.get("shim_start")), (record.get("pid"), record.get("start")))
        if any(_lives(pid, start) for pid, start in pairs):
            found.append("/".join(path.parts[-4:-1]))
    return found


def _lives(pid: object, start: object) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == start and fields[0] not in "ZX"


def last_words(places: Places, lines: int = 3) -> str:
    """The end of what guard and agent said, where no systemd keeps it; else of the agent's log."""
    for path in (places.output, places.data / "log" / "agent.log"):
        try:
            return " / ".join(path.read_text(errors="replace").splitlines()[-lines:]) or "it said nothing"
        except OSError:
            continue
    return "it said nothing"
