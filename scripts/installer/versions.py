"""Versions side by side, each in a virtual environment of its own, and the link that says which one runs.

A version is whole once its mark is there, written last; one without it was interrupted and is made anew. Running tasks
go on under the shim of the version that started them, so a version stays while any process runs from it.
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.installer.places import InstallRefused, Places
from scripts.installer.source import Source

_MARK = ".complete"
_KEPT = 2


def current_version(places: Places) -> str | None:
    """None where nothing is installed."""
    try:
        return Path(os.readlink(places.current)).name
    except OSError:
        return None


def is_whole(places: Places, label: str) -> bool:
    return (places.versions / label / _MARK).is_file()


def build(places: Places, source: Source, lock: int) -> bool:
    """False where it is there already. lock: the installers' own."""
    directory = places.versions / source.label
    if is_whole(places, source.label):
        return False
    if directory.exists():
        shutil.rmtree(directory)
    source.install_into(Path(sys.executable), directory, lock)
    _keep_installer(source, directory)
    _flush(directory)
    (directory / _MARK).write_text(source.label + "\n")
    return True


def discard(places: Places, label: str) -> None:
    """The next build makes it anew."""
    (places.versions / label / _MARK).unlink(missing_ok=True)


def _keep_installer(source: Source, directory: Path) -> None:
    """For `uninstall` on a host that has the bundle no more."""
    kept = directory / "installer"
    (kept / "scripts").mkdir(parents=True)
    here = Path(__file__).resolve().parent
    shutil.copytree(here, kept / "scripts" / "installer", ignore=shutil.ignore_patterns("__pycache__"))
    script = source.directory / ("install.sh" if source.manifest is not None else "scripts/install.sh")
    shutil.copy2(script, kept / "install.sh")


def _flush(directory: Path) -> None:
    """All of it on the disk before the mark: a power cut would leave a mark upon empty files."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "the version could not be flushed to the disk", str(directory))
    finally:
        os.close(descriptor)


def switch(places: Places, label: str) -> None:
    """By rename: at every moment `current` leads to one whole version."""
    if not is_whole(places, label):
        raise InstallRefused(f"version {label} is not whole in {places.versions}; install it again")
    replace_link(places.current, Path("versions") / label)


def replace_link(link: Path, target: Path) -> None:
    fresh = link.with_name(f".{link.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    os.replace(fresh, link)


def prune(places: Places) -> Sequence[str]:
    """Removes what nothing needs: neither current, nor the newest before it, nor run by any process."""
    current = current_version(places)
    others = [path for path in places.versions.iterdir() if path.is_dir() and path.name != current]
    whole = [path for path in others if is_whole(places, path.name)]
    whole.sort(key=lambda path: (path / _MARK).stat().st_mtime, reverse=True)
    keep = {path.name for path in whole[: _KEPT - 1]}
    used = versions_in_use(places)
    gone = [path for path in others if path.name not in keep | used]
    for path in gone:
        # Without its mark first: half a version must not look like one.
        (path / _MARK).unlink(missing_ok=True)
        shutil.rmtree(path)
    return [path.name for path in gone]


def versions_in_use(places: Places) -> set[str]:
    """By the command lines of living processes: interpreters and shims are started by their whole path."""
    versions = f"{places.versions}/"
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            found |= {word.removeprefix(versions).partition("/")[0] for word in words if word.startswith(versions)}
    return found
