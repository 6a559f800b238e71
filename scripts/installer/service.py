"""Start, stop and restart of the guard: by systemd where that runs this host, else as a process of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from scripts.installer import host
from scripts.installer.places import SERVICE, InstallRefused, Places

# The guard gives its agent 15 s to close its files.
_STOP_S = 25.0
_START_S = 10.0
_POLL_S = 0.1


def has_systemd(places: Places) -> bool:
    return not places.own_root and Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def enable() -> None:
    """Also after the unit changed."""
    reload()
    _systemctl("enable", "--quiet", SERVICE)


def reload() -> None:
    _systemctl("daemon-reload")


def disable(places: Places) -> None:
    if has_systemd(places) and places.unit.exists():
        _systemctl("disable", "--quiet", SERVICE)


def start(places: Places, user: str) -> None:
    """Raises InstallRefused where the guard ends at once."""
    if has_systemd(places):
        _systemctl("start", SERVICE)
        return
    account = pwd.getpwnam(user) if user != "root" and os.geteuid() == 0 else None
    places.output.parent.mkdir(parents=True, exist_ok=True)
    with places.output.open("ab") as output:
        if account is not None:
            for path in (places.output.parent, places.output):
                os.chown(path, account.pw_uid, account.pw_gid)
        guard = subprocess.Popen(
            places.guard_command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=os.getgrouplist(user, account.pw_gid) if account else None,
        )
    if not _until(lambda: host.guard_pid(places) == guard.pid or guard.poll() is not None, _START_S) or guard.poll():
        raise InstallRefused(f"the guard did not start: {host.last_words(places)}")


def stop(places: Places) -> None:
    """The guard and its agent; tasks run on. Raises InstallRefused where it does not end."""
    if has_systemd(places) and places.unit.exists():
        _systemctl("stop", SERVICE)
    pid = host.guard_pid(places)
    if pid:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            raise InstallRefused(f"the guard (process {pid}) belongs to another user; run this as root") from error
    if not _until(lambda: host.guard_pid(places) == 0, _STOP_S):
        raise InstallRefused(f"the guard (process {pid}) did not end within {_STOP_S:g} s; look at {places.data}/log")


def wait_healthy(places: Places, enough: Callable[[host.Health], bool], within_s: float, log_from: int) -> host.Health:
    """The first health that is enough, or the last one seen. Ends early where the guard is gone or its agent keeps
    ending. log_from: size of the guard's log before the start."""
    deadline = time.monotonic() + within_s
    gone_since: float | None = None
    while True:
        seen = host.health(places)
        if enough(seen):
            return seen
        # systemd starts a guard that ended again; one that stays away for this long is not coming.
        gone_since = None if host.guard_pid(places) else gone_since or time.monotonic()
        gone = gone_since is not None and time.monotonic() - gone_since > _START_S
        if time.monotonic() > deadline or gone or host.gave_up(places, log_from):
            return seen
        time.sleep(_POLL_S)


def _until(true: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _systemctl(*words: str) -> None:
    ran = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if ran.returncode:
        raise InstallRefused(f"systemctl {' '.join(words)} failed: {ran.stderr.strip()}; see journalctl -u {SERVICE}")
