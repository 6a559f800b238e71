"""The running processes of a data directory, and what this user may do on this host."""

import fcntl
import os
import pwd
import stat
from pathlib import Path

from agentd.core.doctor.facts import RightsFacts, Setup
from agentd.shim.host import descendants, process_table, unshare

_CLONE_NEWUSER, _CLONE_NEWPID = 0x10000000, 0x20000000


def holder_of(lock: Path) -> int:
    """The process that holds it; 0 where none does."""
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


def family_pids(data_dir: str) -> list[int]:
    """Agent and guard of this directory, and what they started."""
    roots = [pid for name in ("lock", "guard.lock") if (pid := holder_of(Path(data_dir) / name))]
    return roots + [process.pid for process in descendants(roots, process_table())] if roots else []


def look_at_rights(setup: Setup) -> RightsFacts:
    data = Path(setup["data_dir"])
    guard = holder_of(data / "guard.lock")
    owner, mode = _owner(data)
    return {
        "user": _user(os.geteuid()),
        "root": os.geteuid() == 0,
        "isolation": _isolation(),
        "data_owner": owner,
        "data_mode": mode,
        "guard_pid": guard,
        "guard_oom": _oom(guard) if guard else None,
        "guard_user": (_owner(Path(f"/proc/{guard}"))[0] or "") if guard else "",
        "delegated": _delegated(guard) if guard else None,
    }


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _owner(path: Path) -> tuple[str | None, int | None]:
    try:
        info = path.stat()
    except OSError:
        return None, None
    return _user(info.st_uid), stat.S_IMODE(info.st_mode)


def _isolation() -> str:
    """As the shim tries them. This process is a probe's own, so it may leave its namespaces."""
    try:
        unshare(_CLONE_NEWPID)
        return "pidns"
    except OSError:
        pass
    try:
        unshare(_CLONE_NEWUSER | _CLONE_NEWPID)
        return "userns"
    except OSError:
        return "subreaper"


def _oom(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    except (OSError, ValueError):
        return None


def _delegated(pid: int) -> bool | None:
    """By the mark that systemd sets on a unit's group; None outside of a unit, and where groups are of version 1."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    group = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")
    directory = f"/sys/fs/cgroup{group}"
    if not group.endswith(".service") or not os.path.isdir(directory):
        return None
    for name in ("trusted.delegate", "user.delegate"):
        try:
            return os.getxattr(directory, name) == b"1"
        except OSError:
            continue
    return False
