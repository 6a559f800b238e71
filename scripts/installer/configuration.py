"""The configuration file of a host: written once, by the version that will read it, and the operator's from then on."""

import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.installer import host
from scripts.installer.places import InstallRefused, Places

_API_PORT, _VOTER_PORT = 7460, 7461


def settings_of(words: Sequence[str]) -> Mapping[str, str]:
    """Flag -> its last value, of the flags that go on to the agent."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            following = words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("--") else ""
            found[flag] = value if equals else following
    return found


def completed(words: Sequence[str], places: Places, address: str) -> list[str]:
    """What the operator said and what the installer knows better than a default."""
    said = settings_of(words)
    added: list[str] = []

    def add(flag: str, value: str) -> None:
        if flag not in said:
            added.extend((flag, value))

    add("--data-dir", str(places.data))
    add("--name", socket.gethostname().split(".")[0])
    address = address or own_address(said.get("--join", ""))
    shown = f"[{address}]" if ":" in address else address
    add("--api", f"{shown}:{_API_PORT}")
    add("--voter", f"{shown}:{_VOTER_PORT}")
    return [*words, *added]


def own_address(peer: str) -> str:
    """The address from which this host reaches `peer` (HOST:PORT), or the world. Nothing is sent."""
    name, _, port = peer.rpartition(":")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            name.strip("[]") or "192.0.2.1", int(port or 9), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        if not peer:
            return "127.0.0.1"
        raise InstallRefused(
            f"--join {peer} is not reached from here ({error}); write HOST:PORT of an agent, or say --address with "
            f"the address of this host that the others reach"
        ) from error


def write_config(places: Places, version_dir: Path, words: Sequence[str]) -> str:
    """What became of the file: one that a member of a mesh runs by is the operator's, and is never written over."""
    before = places.config.read_text() if places.config.exists() else None
    if before is not None and host.is_member(places):
        return "kept: this host is a member already, and the settings given here change nothing; edit the file"
    text = _from_agentd(version_dir, words)
    if before == text:
        return "kept"
    fresh = places.config.with_name(".agent.toml.new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    check_config(version_dir, fresh)
    if before is not None:
        shutil.copy2(places.config, places.config.with_name("agent.toml.before"))
    os.replace(fresh, places.config)
    return "written" if before is None else "written anew, the one before is agent.toml.before"


def check_config(version_dir: Path, config: Path) -> None:
    """Raises InstallRefused where that version cannot obey the file."""
    _from_agentd(version_dir, ["--check", "--config", str(config)])


def _from_agentd(version_dir: Path, words: Sequence[str]) -> str:
    command = [str(version_dir / "bin" / "heteroflow-agentd"), "config", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd="/")
    if ran.returncode:
        said = ran.stderr.strip().splitlines()
        raise InstallRefused(said[-1].removeprefix("heteroflow-agentd: ") if said else "the settings were refused")
    return ran.stdout


def keep_token(places: Places, given: Path, owner: tuple[int, int] | None) -> None:
    """A copy that only the agent's user reads, by rename. owner: uid and gid, None as we are."""
    try:
        mode = stat.S_IMODE(given.stat().st_mode)
        text = given.read_bytes()
    except OSError as error:
        raise InstallRefused(f"--token-file {given} cannot be read: {error.strerror}") from error
    if mode & 0o077:
        raise InstallRefused(
            f"{given} can be read by others (mode {mode:04o}); chmod 600 {given}, and make a new token if it may have "
            f"been seen"
        )
    fresh = places.token.with_name(".join.token.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        if owner is not None:
            os.fchown(file.fileno(), *owner)
    os.replace(fresh, places.token)
