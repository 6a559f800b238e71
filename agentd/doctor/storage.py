"""Disk, shared memory and shares."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from agentd.core.doctor.facts import DiskFacts, Mount, Root, Setup, ShareFacts, ShmFacts
from agentd.core.doctor.share_rules import matters
from agentd.doctor.probe import look_at_all
from schemas.rules.allowed_paths import DEFAULT_ALLOWED_PATHS

_WRITES, _WRITE_BYTES, _WRITE_S = 200, 4096, 3.0
_SHARE_S = 4.0
_ESCAPES = {r"\040": " ", r"\011": "\t", r"\012": "\n", r"\134": "\\"}


def read_mounts(table: str) -> list[Mount]:
    """Of /proc/mounts or an fstab."""
    mounts: list[Mount] = []
    try:
        lines = Path(table).read_text(errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        words = line.split()
        if len(words) >= 3 and not line.lstrip().startswith("#"):
            source, target, kind = (_unescaped(word) for word in words[:3])
            mounts.append({"source": source, "target": target, "kind": kind})
    return mounts


def _unescaped(word: str) -> str:
    for escape, letter in _ESCAPES.items():
        word = word.replace(escape, letter)
    return word


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The one that a path is in, told from the table alone: nothing that may hang is touched."""
    inside = [mount for mount in mounts if (path + "/").startswith(mount["target"].rstrip("/") + "/")]
    # Of two on one place the later one covers the other.
    return max(enumerate(inside), key=lambda pair: (len(pair[1]["target"]), pair[0]))[1] if inside else None


def look_at_disk(setup: Setup) -> DiskFacts:
    path = setup["data_dir"]
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    inside = mount_of(os.path.realpath(path), read_mounts("/proc/mounts"))
    space = os.statvfs(path)
    facts: DiskFacts = {
        "path": path,
        "kind": inside["kind"] if inside else "",
        "free_bytes": space.f_bavail * space.f_frsize,
        "error": "",
        "fsync_ms": [],
    }
    try:
        facts["fsync_ms"] = _measure(path)
    except OSError as error:
        facts["error"] = f"cannot be written: {error.strerror}"
    return facts


def _measure(directory: str) -> list[float]:
    """As a log is written: appended, and each write on the disk before the next."""
    descriptor = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        begun = time.perf_counter()
        taken: list[float] = []
        while len(taken) < _WRITES and time.perf_counter() - begun < _WRITE_S:
            before = time.perf_counter()
            os.write(descriptor, os.urandom(_WRITE_BYTES))
            os.fsync(descriptor)
            taken.append(round((time.perf_counter() - before) * 1000, 3))
        return taken
    finally:
        os.close(descriptor)


def look_at_shm() -> ShmFacts:
    inside = next((mount for mount in reversed(read_mounts("/proc/mounts")) if mount["target"] == "/dev/shm"), None)
    if inside is None:
        return {"kind": "", "bytes": 0, "free_bytes": 0}
    space = os.statvfs("/dev/shm")
    return {
        "kind": inside["kind"],
        "bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
    }


def look_at_shares(setup: Setup, mounts_table: str = "/proc/mounts", fstab: str = "/etc/fstab") -> ShareFacts:
    """Shares are touched in processes of their own only; the table of mounts never hangs."""
    mounts = read_mounts(mounts_table)
    said = {path.rstrip("/") for path in setup["allow_paths"]}
    defaults = {path.rstrip("/") for path in DEFAULT_ALLOWED_PATHS}
    paths = sorted(said | defaults)
    roots: list[Root] = [{"path": path, "said": path in said, "exists": False, "within": ""} for path in paths]
    for root in roots:
        inside = mount_of(root["path"], mounts)
        root["within"] = inside["target"] if inside else ""
    shares = sorted({mount["target"] for mount in mounts if matters(mount, roots)})
    looks = {target: lambda target=target: bool(os.listdir(target) or True) for target in shares}
    looks |= {f"exists {path}": lambda path=path: os.path.isdir(path) for path in paths if "*" not in path}
    seen = look_at_all(looks, _SHARE_S)
    for root in roots:
        # One that hangs is there; that it hangs is told of its mount.
        root["exists"] = seen.get(f"exists {root['path']}", True) is not False
    return {
        "wanted": [one for one in read_mounts(fstab) if one["target"].startswith("/")],
        "mounts": mounts,
        "roots": roots,
        "answers": {target: "" if seen[target] is True else seen[target].text for target in shares},
    }
