"""install, upgrade and uninstall: steps that can each be done again, and that leave a whole host wherever they end."""

import contextlib
import fcntl
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.installer import account, configuration, host, service, unit, versions
from scripts.installer.places import SERVICE, USER, InstallRefused, Places
from scripts.installer.source import Source

_JOINING_S, _HEALTHY_S = 15.0, 90.0
# Longer than a guard without a lease needs to end what it fences.
_FENCED_S = 20.0


@dataclass(frozen=True, slots=True)
class Options:
    """settings: flags that go into the configuration file."""

    user: str = ""
    address: str = ""
    token_file: Path | None = None
    by_hand: bool = False
    purge: bool = False
    force: bool = False
    settings: Sequence[str] = ()


def install(places: Places, source: Source, options: Options) -> int:
    with _alone(places) as lock:
        source.check()
        installed = versions.current_version(places)
        if installed not in (None, source.label):
            raise InstallRefused(
                f"version {installed} is installed here; to go to {source.label} say: install.sh upgrade"
            )
        given = configuration.settings_of(options.settings)
        user = account.choose_user(places, options.user, given.get("--runtime", ""))
        if user != "root":
            _say(f"user {user}: {account.make_user(places, user)}")
        _make_directories(places, account.owner_of(user))
        _build(places, source, lock)
        if user != "root" and not account.can_run(user, places.versions / source.label / "bin" / "python"):
            versions.discard(places, source.label)
            raise InstallRefused(
                f"user {user} cannot run {sys.executable}, which this version was built on; name one in a directory "
                f"that everybody may enter: PYTHON=/usr/bin/python3"
            )
        words = list(options.settings)
        if options.token_file is not None:
            configuration.keep_token(places, options.token_file, account.owner_of(user))
            words += ["--token-file", str(places.token)]
        words = configuration.completed(words, places, options.address)
        done = configuration.write_config(places, places.versions / source.label, words)
        _say(f"configuration {places.config}: {done}")
        versions.switch(places, source.label)
        _link_commands(places)
        _write_unit(places, user)
        if done.startswith("written") and host.guard_pid(places):
            # It reads the file at its start only, and no member of a mesh has come here.
            service.stop(places)
        return _start(places, user, options, given)


def _start(places: Places, user: str, options: Options, given: Mapping[str, str]) -> int:
    if service.has_systemd(places):
        service.enable()
    elif not options.by_hand:
        _say("no systemd runs here, so nothing was started. By hand, and again after each boot:")
        command = shlex.join(places.guard_command)
        _say(f"  setsid {command} </dev/null >>{shlex.quote(str(places.output))} 2>&1 &")
        _say("or let the installer do it: --by-hand")
        return 0
    log_from = host.guard_log_size(places)
    if host.guard_pid(places) == 0:
        service.start(places, user)
    # A founder may wait for hours for its voters: that it waits is all there is to tell.
    founds = "--bootstrap" in options.settings and given.get("--voters", "1") != "1"
    enough = ("ok", "joining") if founds else ("ok",)
    seen = service.wait_healthy(places, lambda health: health.status in enough, _JOINING_S, log_from)
    if seen.status == "silent":
        raise InstallRefused(f"the agent was started and does not answer: {host.last_words(places)}")
    _say(f"agent: {seen.status}" + (f" ({'; '.join(seen.reasons)})" if seen.reasons else ""))
    if not service.has_systemd(places):
        _say("no systemd runs here: after a boot it is started by hand, by the same command as now")
    _say(f"look at this host with: {places.agentd} doctor --config {places.config}")
    return 0


def upgrade(places: Places, source: Source) -> int:
    with _alone(places) as lock:
        before = versions.current_version(places)
        if before is None:
            raise InstallRefused("nothing is installed here; say install.sh with --bootstrap or --join")
        source.check()
        _build(places, source, lock)
        configuration.check_config(places.versions / source.label, places.config)
        user = _user_of(places)
        guard = host.guard_pid(places)
        running = host.version_of_process(places, guard)
        tasks, health = host.living_tasks(places), host.health(places)
        versions.switch(places, source.label)
        _write_unit(places, user)
        if service.has_systemd(places):
            service.enable()
        if not guard:
            _say(f"version {source.label} is installed; no agent runs here, so none was restarted")
            return 0
        if running == source.label:
            _say(f"version {source.label} runs here already")
            return 0
        trouble = _restart(places, user, health)
        if trouble:
            _say(f"version {source.label} did not become healthy: {trouble}")
            return _roll_back(places, user, running if versions.is_whole(places, running) else before, health)
        left = host.living_tasks(places)
        _say(f"version {source.label} runs; {len(left)} of {len(tasks)} tasks that ran before run on")
        for gone in versions.prune(places):
            _say(f"version {gone}: removed, nothing runs from it")
        return 0


def _restart(places: Places, user: str, before: host.Health) -> str:
    """Why it is no success; empty when it is. Tasks run on: the guard leaves them to their shims."""
    try:
        service.stop(places)
        log_from = host.guard_log_size(places)
        service.start(places, user)
    except InstallRefused as error:
        return str(error)
    # No better than it was: a host that was degraded before is not made well by another version.
    fine = ("ok",) if before.status == "ok" else ("ok", "degraded", before.status)

    def enough(health: host.Health) -> bool:
        return health.pid not in (0, before.pid) and health.status in fine

    # Without a lease the tasks stop themselves after T_stop: the version before must be back by then.
    within_s = host.stop_after_s(places) / 2 if host.living_tasks(places) else _HEALTHY_S
    seen = service.wait_healthy(places, enough, within_s, log_from)
    return "" if enough(seen) else f"{seen.status}: {'; '.join(seen.reasons)}; {host.last_words(places)}"


def _roll_back(places: Places, user: str, label: str, before: host.Health) -> int:
    versions.switch(places, label)
    trouble = _restart(places, user, before)
    if trouble:
        _say(f"and version {label}, which is current again, is not healthy either: {trouble}")
    else:
        _say(f"version {label} runs again as before; tasks ran on")
    return 1


def uninstall(places: Places, options: Options) -> int:
    with _alone(places):
        tasks = host.living_tasks(places)
        if tasks and not options.force:
            raise InstallRefused(
                f"{len(tasks)} tasks run on this host ({', '.join(tasks[:3])}); drain the node first, or say --force "
                f"to have them killed"
            )
        service.disable(places)
        service.stop(places)
        if tasks:
            _fence(places)
        for link, target in places.commands.items():
            if link.is_symlink() and os.readlink(link) == str(target):
                link.unlink()
        places.unit.unlink(missing_ok=True)
        if service.has_systemd(places):
            service.reload()
        kept = [places.config_dir, places.data]
        if options.purge:
            for directory in filter(Path.exists, kept):
                shutil.rmtree(directory)
            if account.remove_user(places):
                _say(f"user {USER}: removed")
        shutil.rmtree(places.home)
        _remove_empty(places)
        left = [str(path) for path in kept if path.exists()]
        _say("removed: the agent, its versions, its unit and its commands")
        _say(f"left: {', '.join(left)} (--purge removes them too)" if left else "left: nothing")
        _say("the mesh still lists this node, as lost; its cards are no longer given to anybody")
        return 0


def _remove_empty(places: Places) -> None:
    """A root of its own is left as it was found: the directories above ours go where nothing else is in them."""
    used = (places.home, places.unit, places.config_dir, places.data, *places.commands)
    for path in used if places.own_root else ():
        for parent in path.parents:
            if parent == places.root:
                break
            with contextlib.suppress(OSError):
                parent.rmdir()


def _fence(places: Places) -> None:
    """Without a lease every shim kills its task at once; that is what a host does that lost its mesh."""
    (places.data / "lease").unlink(missing_ok=True)
    deadline = time.monotonic() + _FENCED_S
    while left := host.living_tasks(places):
        if time.monotonic() > deadline:
            raise InstallRefused(
                f"{', '.join(left)} outlive the loss of the lease (on_isolation: keep); end their processes by hand "
                f"and say uninstall again"
            )
        time.sleep(0.2)


def _build(places: Places, source: Source, lock: int) -> None:
    made = versions.build(places, source, lock)
    _say(f"version {source.label}: {'installed in' if made else 'is in'} {places.versions / source.label}")


def _make_directories(places: Places, owner: tuple[int, int] | None) -> None:
    for directory in (places.versions, places.config_dir):
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    places.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if owner is not None:
        os.chown(places.data, *owner)


def _link_commands(places: Places) -> None:
    for link, target in places.commands.items():
        if link.exists() and not link.is_symlink():
            _say(f"{link} is a file of somebody else's and was left; the command is {target}")
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        versions.replace_link(link, target)


def _write_unit(places: Places, user: str) -> None:
    places.unit.parent.mkdir(parents=True, exist_ok=True)
    fresh = places.unit.with_name(f".{SERVICE}.new")
    fresh.write_text(unit.unit_text(places, user))
    fresh.chmod(0o644)
    os.replace(fresh, places.unit)


def _user_of(places: Places) -> str:
    """As the unit says: it is the place where an installation keeps that."""
    with contextlib.suppress(OSError):
        for line in places.unit.read_text().splitlines():
            if line.startswith("User="):
                return line.removeprefix("User=")
    return account.choose_user(places, "", str(host.settings(places).get("runtime", "")))


@contextlib.contextmanager
def _alone(places: Places) -> Iterator[int]:
    """The lock. Two installers at once would take each other's half-made version for an interrupted one."""
    try:
        places.home.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(places.home / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise InstallRefused(f"{places.home} cannot be written; run this as root, or say --root DIR") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InstallRefused(f"another installer is at work in {places.home}; wait for it") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _say(text: str) -> None:
    print(text, flush=True)
