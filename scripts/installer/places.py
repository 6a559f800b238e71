"""Where everything of an installation is. With a root of its own all of it is below that root and runs from there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SERVICE = "heteroflow-agentd.service"
USER = "heteroflow"


class InstallRefused(Exception):
    """Nothing more was done: what happened, what it means, what to do."""


@dataclass(frozen=True, slots=True)
class Places:
    root: Path

    @property
    def own_root(self) -> bool:
        """An installation beside the host's own: no user, no unit is given to the host's systemd."""
        return self.root != Path("/")

    @property
    def home(self) -> Path:
        return self.root / "opt" / "heteroflow"

    @property
    def versions(self) -> Path:
        return self.home / "versions"

    @property
    def current(self) -> Path:
        """A link to the version that the next start runs."""
        return self.home / "current"

    @property
    def config_dir(self) -> Path:
        return self.root / "etc" / "heteroflow"

    @property
    def config(self) -> Path:
        return self.config_dir / "agent.toml"

    @property
    def token(self) -> Path:
        return self.config_dir / "join.token"

    @property
    def data(self) -> Path:
        return self.root / "var" / "lib" / "heteroflow"

    @property
    def output(self) -> Path:
        """What the guard prints where no systemd keeps it."""
        return self.data / "log" / "output.log"

    @property
    def unit(self) -> Path:
        return self.root / "etc" / "systemd" / "system" / SERVICE

    @property
    def commands(self) -> Mapping[Path, Path]:
        """Link for people -> what it leads to."""
        names = ("heteroflow", "heteroflow-agentd")
        return {self.root / "usr" / "local" / "bin" / name: self.current / "bin" / name for name in names}

    @property
    def agentd(self) -> Path:
        return self.current / "bin" / "heteroflow-agentd"

    @property
    def guard_command(self) -> list[str]:
        return [str(self.agentd), "guard", "--config", str(self.config)]
