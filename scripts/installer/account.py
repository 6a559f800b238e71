"""The user that the agent runs as."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from scripts.installer.places import USER, InstallRefused, Places

# Whoever opens the devices of cards and of RDMA on the distributions that have these groups.
_GROUPS = ("video", "render", "rdma")


def choose_user(places: Places, said: str, runtime: str) -> str:
    """Containers need root: their processes are another user's, and fencing must reach them."""
    if runtime == "docker" and said not in ("", "root"):
        raise InstallRefused(f"--runtime docker needs the user root, not {said}; leave --user out")
    if said:
        return said
    return "root" if runtime == "docker" or places.own_root else USER


def make_user(places: Places, user: str) -> str:
    """What was done, for people."""
    try:
        pwd.getpwnam(user)
        return "is there"
    except KeyError:
        pass
    if places.own_root or os.geteuid() != 0:
        raise InstallRefused(f"there is no user {user} on this host; make it first, or leave --user out")
    command = ["useradd", "--system", "--user-group", "--home-dir", str(places.data), "--no-create-home"]
    groups = ",".join(name for name in _GROUPS if f"\n{name}:" in "\n" + Path("/etc/group").read_text())
    command += ["--shell", shutil.which("nologin") or "/usr/sbin/nologin", *(["--groups", groups] if groups else [])]
    ran = subprocess.run([*command, user], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise InstallRefused(f"user {user} could not be made: {ran.stderr.strip()}")
    return "made"


def can_run(user: str, program: Path) -> bool:
    """Also all directories on the way to it; an interpreter below /root is one that only root can run."""
    account = pwd.getpwnam(user)
    if os.geteuid() != 0:
        return os.access(program, os.X_OK)
    command = [str(program), "-I", "-c", "pass"]
    try:
        ran = subprocess.run(
            command,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            capture_output=True,
            check=False,
            cwd="/",
        )
    except OSError:
        return False
    return ran.returncode == 0


def remove_user(places: Places) -> bool:
    """Only the one that the installer makes."""
    try:
        ours = pwd.getpwnam(USER).pw_dir == str(places.data)
    except KeyError:
        return False
    if places.own_root or not ours:
        return False
    return subprocess.run(["userdel", USER], capture_output=True, check=False).returncode == 0


def owner_of(user: str) -> tuple[int, int] | None:
    """uid and gid to give files to; None where they are ours already."""
    account = pwd.getpwnam(user)
    return None if account.pw_uid == os.geteuid() else (account.pw_uid, account.pw_gid)
