"""Meshes one works with, by name: `~/.config/heteroflow/contexts.toml`.

    current = "lab"

    [contexts.lab]
    nodes = ["gpu-01:7460", "gpu-02:7460"]
    ca_file = "/home/ada/.config/heteroflow/lab.pem"
    key_file = "/home/ada/.config/heteroflow/keys/lab"

The file holds no secret, but it says whom the key is shown to: a file that others may write is not used."""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from console.core.format import reason_of
from schemas.errors import InvalidInput, NotFound

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Context:
    nodes: tuple[str, ...]
    key_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """current: the one that is meant where none is named, "" for none."""

    path: Path
    current: str = ""
    named: Mapping[str, Context] = field(default_factory=dict)

    def of(self, name: str) -> Context:
        """Raises NotFound."""
        if name not in self.named:
            known = ", ".join(sorted(self.named)) or "none yet"
            hint = f"Known: {known}. `heteroflow login {name[:40]} --node HOST:PORT` makes it."
            raise NotFound("no_such_context", f"there is no context {name[:80]!r} in {self.path}", hint)
        return self.named[name]

    def with_context(self, name: str, context: Context) -> "Contexts":
        return replace(self, current=name, named={**self.named, name: context})

    def without(self, name: str) -> "Contexts":
        left = {other: context for other, context in self.named.items() if other != name}
        return replace(self, current="" if self.current == name else self.current, named=left)


def config_dir(env: Mapping[str, str]) -> Path:
    home = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME", "~"), ".config")
    return Path(home).expanduser() / "heteroflow"


def load_contexts(env: Mapping[str, str]) -> Contexts:
    """Raises InvalidInput(bad_context)."""
    path = config_dir(env) / "contexts.toml"
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o022:
                raise _bad(
                    path, f"may be written by others (mode {mode:04o})", f"Look through it, then chmod 600 {path}."
                )
            raw = tomllib.load(file)
    except FileNotFoundError:
        return Contexts(path)
    except (OSError, ValueError) as error:
        raise _bad(
            path, f"cannot be read: {reason_of(error)}", "`heteroflow login` writes a new one once it is gone."
        ) from error
    table, current = raw.get("contexts", {}), raw.get("current", "")
    if not isinstance(table, dict) or not isinstance(current, str):
        raise _bad(path, "is no contexts file", "It holds current = NAME and [contexts.NAME] tables.")
    return Contexts(path, current, {name: _context(path, name, value) for name, value in table.items()})


def save_contexts(contexts: Contexts) -> None:
    """Whole or not at all, for this user alone. Raises InvalidInput(bad_context)."""
    # Only login and `context use` write.
    import tomli_w

    raw: dict[str, Any] = {"current": contexts.current} if contexts.current else {}
    raw["contexts"] = {name: asdict(context) for name, context in contexts.named.items()}
    write_private(contexts.path, tomli_w.dumps(raw))


def write_private(path: Path, text: str) -> None:
    """0600 from its first byte, in a directory that is 0700 where it is made here. Raises InvalidInput(bad_context)."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise _bad(path, f"cannot be written: {error.strerror}", "Nothing was changed.") from error


def _context(path: Path, name: str, value: Any) -> Context:
    nodes, key_file, ca_file = (
        (value.get("nodes"), value.get("key_file", ""), value.get("ca_file", ""))
        if isinstance(value, dict)
        else (None, "", "")
    )
    if (
        not isinstance(nodes, list)
        or not nodes
        or not all(isinstance(node, str) for node in nodes)
        or not isinstance(key_file, str)
        or not isinstance(ca_file, str)
    ):
        raise _bad(
            path, f"has a context {name[:80]!r} without nodes", 'Write nodes = ["HOST:PORT"], key_file, ca_file.'
        )
    return Context(tuple(nodes), key_file, ca_file)


def _bad(path: Path, what: str, hint: str) -> InvalidInput:
    return InvalidInput("bad_context", f"{path} {what}", hint)
