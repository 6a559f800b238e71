"""What is installed from: a bundle (wheels, no network) or a checkout (pip and its index)."""

import hashlib
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.installer.label import label_of
from scripts.installer.places import InstallRefused

MANIFEST = "manifest.json"
PROJECT = "heteroflow-mesh"


@dataclass(frozen=True, slots=True)
class Source:
    directory: Path
    label: str
    manifest: dict[str, Any] | None

    def check(self) -> None:
        """That this host can use it and nothing of it changed on its way. Raises InstallRefused."""
        if self.manifest is None:
            return
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if here not in self.manifest["pythons"]:
            made_for = " and ".join(self.manifest["pythons"])
            raise InstallRefused(
                f"this bundle holds wheels for Python {made_for}, and {sys.executable} is {here}; name another "
                f"interpreter (PYTHON=/path/to/python ./install.sh ...) or make the bundle with --python {here}"
            )
        if platform.machine() != self.manifest["machine"]:
            raise InstallRefused(
                f"this bundle is for {self.manifest['machine']}, and this host is {platform.machine()}; make one there"
            )
        wrong = [name for name, digest in self.manifest["files"].items() if _digest(self.directory / name) != digest]
        if wrong:
            raise InstallRefused(
                f"the bundle is damaged: {', '.join(wrong[:3])}{' and more' if wrong[3:] else ''} differs from "
                f"{MANIFEST}; nothing was installed: copy the bundle again"
            )

    def install_into(self, python: Path, version_dir: Path, lock: int) -> None:
        """A virtual environment of its own at `version_dir`, with the project in it.

        lock: descriptor that what is started here holds too: a pip that outlives a killed installer still writes."""
        if self.manifest is not None:
            wheels = self.directory / "wheels"
            (pip,) = wheels.glob("pip-*.whl")
            # Without ensurepip: Debian has it in a package of its own, and pip runs out of its wheel as well.
            _run([str(python), "-m", "venv", "--without-pip", str(version_dir)], lock)
            arguments = ["--no-index", "--find-links", str(wheels), f"{PROJECT}=={self.label}"]
            _run([str(version_dir / "bin" / "python"), f"{pip}/pip", *_PIP, *arguments], lock)
            return
        _run([str(python), "-m", "venv", str(version_dir)], lock, "Debian: apt-get install python3-venv")
        _run(
            [str(version_dir / "bin" / "python"), "-m", "pip", *_PIP, str(self.directory)],
            lock,
            "without an index on this host, install from a bundle (scripts/bundle)",
        )


_PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-input", "--root-user-action=ignore")


def find_source(directory: Path) -> Source:
    """directory: what holds the installer."""
    manifest = directory / MANIFEST
    if manifest.is_file():
        try:
            stated = json.loads(manifest.read_text())
            return Source(directory, stated["version"], stated)
        except (ValueError, KeyError, TypeError) as error:
            raise InstallRefused(f"{manifest} is damaged ({error}); copy the bundle again") from error
    if (directory / "pyproject.toml").is_file():
        return Source(directory, label_of(directory).text, None)
    raise InstallRefused(
        f"{directory} is neither a bundle nor a checkout: there is nothing to install from; copy the whole bundle, "
        f"or run scripts/install.sh of a checkout"
    )


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(path: Path) -> str:
    try:
        return digest_of(path)
    except OSError:
        return ""


def _run(command: list[str], lock: int, hint: str = "") -> None:
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, pass_fds=(lock,)
    )
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip().splitlines()[-5:]
        raise InstallRefused(
            f"{' '.join(command[:4])} ... failed with {ran.returncode}: {' / '.join(said)}"
            + (f"; {hint}" if hint else "")
        )
