"""The agent's directory: who this node is, written durably once per fact learned."""

import fcntl
import json
import os
import re
import secrets
import stat
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

FORMAT = 1
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}")


class DataDirRefused(Exception):
    """The directory cannot be used as it is: what, where, what to do (exit code 3)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What this node knows about itself; unknown facts are empty until learned."""

    node_id: str
    uid: str
    cluster_id: str = ""
    epoch: int = 0
    profile: str = ""
    role: str = ""  # founder (waiting for joiners), voter, member
    raft_id: int = 0
    voter_addr: str = ""
    api_addr: str = ""
    voters_wanted: int = 0  # founder only
    mesh_voters: tuple[str, ...] = ()  # voter addresses to talk to
    mesh_agents: tuple[str, ...] = ()  # API addresses to re-join through


def write_durably(path: Path, text: str, mode: int = 0o600) -> None:
    """Whole or not at all, also after a power cut."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        left = memoryview(text.encode())
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_secret_file(path: Path) -> str:
    """The one line of a file that opens a mesh: one that others can read is refused, not used."""
    try:
        info = path.stat()
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise DataDirRefused(f"the token cannot be read: {path}: {error.strerror}; copy it there again") from error
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise DataDirRefused(
            f"{path} can be read by others (mode {stat.S_IMODE(info.st_mode):04o}): whoever reads it controls the "
            f"mesh; "
            f"run chmod 600 {path}, and make a new token if it may have been seen"
        )
    return text


def read_token_file(path: Path) -> str:
    """A mesh token, which is a root credential of every host."""
    text = read_secret_file(path)
    if not _TOKEN.fullmatch(text):
        raise DataDirRefused(
            f"{path} holds no mesh token (one line, 32 to 128 letters, digits, '_' or '-'); copy it again"
        )
    return text


class DataDir:
    """Opened exclusively; `close` gives it back."""

    def __init__(self, root: Path, lock: int) -> None:
        self.root = root
        self._lock = lock

    @classmethod
    def open(cls, root: Path) -> "DataDir":
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("tasks", "log", "voter"):
                (root / name).mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataDirRefused(
                f"{root} cannot be used: {error.strerror}; choose a directory this user may write"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirRefused(
                f"{root} is in use by another agent (process {holder}); stop that one or choose another --data-dir"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(root, descriptor)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def voter_dir(self) -> Path:
        return self.root / "voter"

    @property
    def tasks_dir(self) -> Path:
        return self.root / "tasks"

    @property
    def log_dir(self) -> Path:
        return self.root / "log"

    @property
    def lease_path(self) -> Path:
        return self.root / "lease"

    @property
    def gossip_path(self) -> Path:
        return self.root / "gossip.json"

    @property
    def token_path(self) -> Path:
        return self.root / "token"

    @property
    def tls_dir(self) -> Path:
        return self.root / "tls"

    @property
    def ca_dir(self) -> Path:
        return self.root / "ca"

    @property
    def founding_path(self) -> Path:
        return self.root / "founding.json"

    @property
    def roster_path(self) -> Path:
        return self.voter_dir / "roster.json"

    def identity(self) -> Identity | None:
        raw = self._json("node.json")
        if raw is None:
            return None
        version = raw.pop("format", None)
        if version != FORMAT:
            raise DataDirRefused(
                f"{self.root}/node.json has format {version}, this heteroflow-agentd reads format {FORMAT}: it was "
                f"written by "
                f"another version; start that version, or choose another --data-dir"
            )
        known = {entry.name for entry in fields(Identity)}
        if not known >= set(raw) or not {"node_id", "uid"} <= set(raw):
            raise DataDirRefused(
                f"{self.root}/node.json is not one of ours; restore it from a backup or choose another --data-dir"
            )
        for name in ("mesh_voters", "mesh_agents"):
            raw[name] = tuple(raw.get(name, ()))
        return Identity(**raw)

    def save(self, identity: Identity) -> Identity:
        write_durably(self.root / "node.json", json.dumps({"format": FORMAT, **asdict(identity)}, indent=1) + "\n")
        return identity

    def learn(self, identity: Identity, **facts: Any) -> Identity:
        changed = replace(identity, **facts)
        return identity if changed == identity else self.save(changed)

    def token(self) -> str | None:
        return read_token_file(self.token_path) if self.token_path.exists() else None

    def save_token(self, token: str) -> str:
        write_durably(self.token_path, token + "\n")
        return token

    def founding(self) -> dict[str, Any] | None:
        return self._json("founding.json")

    def save_founding(self, founding: dict[str, Any]) -> None:
        """The freeze: from here on this node knows one roster for ever."""
        write_durably(self.founding_path, json.dumps(founding, indent=1) + "\n")

    def _json(self, name: str) -> dict[str, Any] | None:
        return read_json(self.root / name)


def read_json(path: Path) -> dict[str, Any] | None:
    """None where there is no such file. Raises DataDirRefused for what is no map."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataDirRefused(
            f"{path} cannot be read ({error}); restore it from a backup or choose another --data-dir"
        ) from error
    if not isinstance(value, dict):
        raise DataDirRefused(f"{path} is not one of ours; restore it from a backup or choose another --data-dir")
    return value


def new_uid() -> str:
    return secrets.token_hex(16)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def new_cluster_id() -> str:
    return secrets.token_hex(8)


def new_raft_id() -> int:
    return secrets.randbits(47) + 1
