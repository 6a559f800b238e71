"""What a build is called: the version of pyproject.toml and the commit that it is of."""

import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Label:
    """commit: empty outside a git checkout. dirty: files differ from it."""

    version: str
    commit: str
    dirty: bool

    @property
    def text(self) -> str:
        """As PEP 440 has it, so that it can be the version of the wheel too: `0.1.0+g0123456789ab`."""
        if not self.commit:
            return self.version
        return f"{self.version}+g{self.commit[:12]}" + (".dirty" if self.dirty else "")


def label_of(checkout: Path) -> Label:
    version = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"]
    commit = _git(checkout, "rev-parse", "HEAD")
    return Label(version, commit, bool(commit and _git(checkout, "status", "--porcelain")))


def _git(checkout: Path, *arguments: str) -> str:
    """Empty where there is no git, or no checkout of it."""
    try:
        ran = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""
