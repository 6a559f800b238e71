"""The voter's data directory: whether this process may use it, the lock, and the roster.

Nothing is written before the checks.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
from dataclasses import dataclass
from pathlib import Path

from mesh.store.errors import DirectoryInUse, DirectoryRefused

# An agent that died leaves a voter that hands over the lead before it ends, and the next one is there within 0.3 s.
LOCK_PATIENCE_S, _LOCK_AGAIN_S = 3.0, 0.02
_OWN_FILES = ("log.db", "log.db-wal", "state.db", "state.db-wal", "state.db-shm", "hwm", "lock", "roster.json")


@dataclass(frozen=True, slots=True)
class VoterRecord:
    raft_id: int
    node: str
    voter_addr: str
    api_addr: str


@dataclass(frozen=True, slots=True)
class Roster:
    """Who votes. Written once before the first start."""

    cluster_id: str
    epoch: int
    voters: tuple[VoterRecord, ...]

    def voter(self, raft_id: int) -> VoterRecord | None:
        return next((v for v in self.voters if v.raft_id == raft_id), None)


def read_roster(path: Path, raft_id: int) -> Roster:
    """Raises DirectoryRefused with the reason."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        voters = tuple(
            VoterRecord(int(v["raft_id"]), str(v["node"]), str(v["voter_addr"]), str(v.get("api_addr", "")))
            for v in raw["voters"]
        )
        roster = Roster(str(raw["cluster_id"]), int(raw["epoch"]), voters)
    except OSError as error:
        raise DirectoryRefused(
            f"{path}: the roster cannot be read ({error.strerror}); it is written when the mesh is made"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DirectoryRefused(f"{path}: not a roster ({type(error).__name__}: {error})") from error
    if roster.voter(raft_id) is None:
        raise DirectoryRefused(
            f"{path}: raft id {raft_id} is not among its voters; this directory belongs to another voter"
        )
    if len({v.raft_id for v in voters}) != len(voters):
        raise DirectoryRefused(f"{path}: a raft id stands there twice")
    return roster


def check_owner(directory: Path) -> None:
    """Refuse what another user made, before anything is touched: a half start leaves files that hide the data."""
    if not directory.is_dir():
        raise DirectoryRefused(f"{directory} is no directory; it is made when the host joins or bootstraps")
    me = os.geteuid()
    for path in (directory, *(directory / name for name in _OWN_FILES)):
        try:
            owner = path.stat().st_uid
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise DirectoryRefused(f"{path} may not be read by {_user(me)}; start as the user who made it") from error
        if owner != me:
            raise DirectoryRefused(
                f"{path} belongs to {_user(owner)}, this process runs as {_user(me)}; start it as {_user(owner)}"
            )
        if not os.access(path, os.R_OK | os.W_OK):
            raise DirectoryRefused(
                f"{path} may not be read and written by {_user(me)}; give it its permissions back (u+rw)"
            )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def lock_directory(directory: Path, patience_s: float = LOCK_PATIENCE_S) -> int:
    """The descriptor that holds the lock until the process ends. Raises DirectoryInUse when another voter keeps it."""
    path = directory / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                os.close(fd)
                raise DirectoryInUse(f"{directory} is in use by another voter process; stop that one first") from error
            time.sleep(_LOCK_AGAIN_S)
        else:
            return fd
