"""What an operator may say to an agent, checked before anything is touched."""

import argparse
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mesh.core.control.retention import Retention
from schemas.errors import InvalidInput
from schemas.ids import node_id
from schemas.limits import DEFAULT_PROFILE, PROFILES
from schemas.loopback import is_loopback
from schemas.rules.allowed_paths import DEFAULT_ALLOWED_PATHS
from schemas.rules.rendezvous_address import CANDIDATES_MAX

RUNTIMES = ("process", "docker", "memory")
VOTER_COUNTS = (1, 3, 5)
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\.?")
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class ConfigError(Exception):
    """A flag that cannot be obeyed: what, what it means, what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    data_dir: Path
    name: str
    api: Address
    voter: Address
    bootstrap: bool = False
    voters: int = 1
    join: Address | None = None
    token_file: Path | None = None
    profile: str | None = None
    gpus: str = "nvml"
    runtime: str = "process"
    docker_socket: str = "/var/run/docker.sock"
    labels: dict[str, str] = field(default_factory=dict)
    extra_allowed_paths: tuple[str, ...] = ()
    telemetry_every_s: float = 2.0
    stall_after_s: float = 180.0
    stall_fails_after_s: float = 1800.0
    rendezvous_after_s: float = 120.0
    tls: bool | None = None
    """None: as the data directory was made, else on unless everything is on loopback."""
    advertise: str = ""
    rendezvous_addresses: tuple[str, ...] = ()

    @property
    def api_public(self) -> Address:
        """Where others reach the API of this agent."""
        return Address(self.advertise or self.api.host, self.api.port)

    @property
    def voter_public(self) -> Address:
        return Address(self.advertise or self.voter.host, self.voter.port)

    @property
    def on_loopback(self) -> bool:
        return all(is_loopback(host) for host in (self.api.host, self.voter.host, self.api_public.host))

    keep_days: float = 30.0
    keep_groups: int = 10_000

    @property
    def retention(self) -> Retention:
        keep_ms = int(self.keep_days * 86_400_000) if self.keep_days else None
        return Retention(keep_ms, self.keep_groups or None)

    @property
    def allowed_paths(self) -> tuple[str, ...]:
        return DEFAULT_ALLOWED_PATHS + self.extra_allowed_paths


def parse_address(text: str, flag: str) -> Address:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]").lower()
    if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ConfigError(f"{flag} {text!r} is not HOST:PORT; write for example {flag} 127.0.0.1:7460")
    return Address(host, int(port))


def is_every_address(host: str) -> bool:
    """0.0.0.0 or ::, where one can listen and nobody can call."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def parse_advertised(text: str, flag: str = "--advertise") -> str:
    """A host as others call it: an address, or a name in lower case."""
    host = text.strip("[]").lower()
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"{flag} {text!r} is no host: say a name or an address without a port, as other hosts reach this one"
            ) from None
    if is_every_address(host):
        raise ConfigError(f"{flag} {text} is every address; say the one under which other hosts reach this one")
    return host


def parse_addresses(items: Sequence[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(parse_advertised(item, "--rendezvous-address") for item in items))
    if len(found) > CANDIDATES_MAX:
        raise ConfigError(f"--rendezvous-address is said {len(found)} times; {CANDIDATES_MAX} at most are tried")
    return found


def require_reachable(config: AgentConfig) -> None:
    """Raises ConfigError for addresses that nobody could call, or that everybody could call in clear."""
    for flag, address in (("--api", config.api), ("--voter", config.voter)):
        if is_every_address(address.host) and not config.advertise:
            raise ConfigError(
                f"{flag} {address} listens on every address of this host, and other hosts need one to call: say "
                f"--advertise HOST"
            )
        if config.tls is False and not is_loopback(address.host):
            raise ConfigError(
                f"{flag} {address} is not a loopback address: without TLS whoever is on the way could read and command "
                f"this mesh; leave --tls off out, or use an address in 127.0.0.0/8 or ::1"
            )


def parse_labels(items: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not _LABEL_KEY.fullmatch(key) or len(value) > 256 or not value.isprintable():
            raise ConfigError(
                f"--label {item!r} is not KEY=VALUE; a key is letters, digits, '_', '.', '-' (63 at most)"
            )
        if key in labels:
            raise ConfigError(f"--label {key} is given twice; keep one")
        labels[key] = value
    return labels


def parse_allow_paths(items: Sequence[str]) -> tuple[str, ...]:
    for item in items:
        if not item.startswith("/") or item == "/" or ".." in item.split("/"):
            raise ConfigError(f"--allow-path {item!r} must be an absolute directory below / without '..'")
    return tuple(item.rstrip("/") + "/" for item in items)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", type=Path, help="directory of this agent, made 0700 when missing")
    parser.add_argument("--bootstrap", action="store_true", help="found a new mesh (exactly one agent says this)")
    parser.add_argument("--voters", type=int, default=1, help="with --bootstrap: voters of the mesh, 1, 3 or 5")
    parser.add_argument("--join", metavar="HOST:PORT", help="API address of an agent of the mesh to join")
    parser.add_argument(
        "--token-file", type=Path, help="with --join: file with a join token (without TLS the mesh token), mode 0600"
    )
    parser.add_argument("--name", default=socket.gethostname().split(".")[0], help="name of this node in the mesh")
    parser.add_argument("--api", metavar="HOST:PORT", default="127.0.0.1:7460")
    parser.add_argument("--voter", metavar="HOST:PORT", default="127.0.0.1:7461")
    parser.add_argument(
        "--advertise", metavar="HOST", default="", help="host under which others reach both, where it is another one"
    )
    parser.add_argument(
        "--rendezvous-address",
        action="append",
        default=[],
        metavar="HOST",
        help="where ranks of other hosts find rank 0 here, the best first (of the interfaces, private ones first)",
    )
    parser.add_argument(
        "--tls", choices=("on", "off"), help="off is for trying out on loopback, where it is what is not said"
    )
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), help=f"lease profile of the mesh ({DEFAULT_PROFILE} when not said)"
    )
    parser.add_argument("--gpus", default="nvml", help="nvml, none, or simulated:NxTYPE such as simulated:2xH100")
    parser.add_argument("--runtime", choices=RUNTIMES, default="process")
    parser.add_argument("--docker-socket", default="/var/run/docker.sock", metavar="PATH", help="with --runtime docker")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--allow-path", action="append", default=[], metavar="DIR", help="more roots for checkpoints and data"
    )
    add_telemetry_flags(parser)
    add_retention_flags(parser)


def add_retention_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-days",
        type=float,
        default=30.0,
        metavar="DAYS",
        help="how long ended groups are kept, 0 for ever (the same on every agent)",
    )
    parser.add_argument(
        "--keep-groups",
        type=int,
        default=10_000,
        metavar="N",
        help="how many ended groups are kept, 0 for any number (the same on every agent)",
    )


def _kept(days: float, groups: int) -> tuple[float, int]:
    if not (days == 0 or 1 / 24 <= days <= 3660):
        raise ConfigError(f"--keep-days {days:g} is out of range; say 0.05 (an hour or so) to 3660, or 0 for ever")
    if not 0 <= groups <= 1_000_000:
        raise ConfigError(f"--keep-groups {groups} is out of range; say 1 to 1000000, or 0 for any number")
    return days, groups


def add_telemetry_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--telemetry-every", type=float, default=2.0, metavar="SECONDS", help="how often tasks and cards are looked at"
    )
    parser.add_argument(
        "--stall-after",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="no step, idle cards and silent logs for this long is a stall (the same on every agent)",
    )
    parser.add_argument(
        "--stall-fails-after",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="a group that stood still for this long is failed as stalled; 0: never (the leader's setting counts)",
    )
    parser.add_argument(
        "--rendezvous-after",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="ranks that have not found each other so long after all were running are named (the same on every agent)",
    )


def _stall_fails(value: float, stall_after_s: float) -> float:
    """Nothing is failed before it is called stalled, so a longer limit of that counts here too."""
    return value and max(_seconds(value, "--stall-fails-after", 0.5, 7 * 86_400.0), stall_after_s)


def _seconds(value: float, flag: str, low: float, high: float) -> float:
    if not low <= value <= high:
        raise ConfigError(f"{flag} {value:g} is out of range; say {low:g} to {high:g} seconds")
    return value


def config_from_flags(flags: argparse.Namespace) -> AgentConfig:
    if flags.data_dir is None:
        raise ConfigError(
            "--data-dir is not said: where this node keeps who it is; say for example /var/lib/heteroflow"
        )
    api, voter = parse_address(flags.api, "--api"), parse_address(flags.voter, "--voter")
    if api == voter:
        raise ConfigError(f"--api and --voter are both {api}; give them different ports")
    if flags.bootstrap and flags.join:
        raise ConfigError("--bootstrap founds a mesh and --join enters one; say only one of them")
    if flags.bootstrap and flags.voters not in VOTER_COUNTS:
        raise ConfigError(f"--voters {flags.voters} cannot form clean majorities; use 1, 3 or 5")
    if not flags.bootstrap and flags.voters != 1:
        raise ConfigError("--voters is decided by the agent that says --bootstrap; leave it out here")
    try:
        name = node_id(flags.name)
    except InvalidInput as error:
        raise ConfigError(f"--name: {error}") from error
    keep_days, keep_groups = _kept(flags.keep_days, flags.keep_groups)
    config = AgentConfig(
        data_dir=flags.data_dir.expanduser().absolute(),
        name=name,
        api=api,
        voter=voter,
        bootstrap=flags.bootstrap,
        voters=flags.voters,
        join=parse_address(flags.join, "--join") if flags.join else None,
        token_file=flags.token_file,
        profile=flags.profile,
        gpus=flags.gpus,
        runtime=flags.runtime,
        docker_socket=flags.docker_socket,
        labels=parse_labels(flags.label),
        extra_allowed_paths=parse_allow_paths(flags.allow_path),
        telemetry_every_s=_seconds(flags.telemetry_every, "--telemetry-every", 0.1, 60.0),
        stall_after_s=_seconds(flags.stall_after, "--stall-after", 0.5, 86_400.0),
        stall_fails_after_s=_stall_fails(flags.stall_fails_after, flags.stall_after),
        rendezvous_after_s=_seconds(flags.rendezvous_after, "--rendezvous-after", 0.5, 86_400.0),
        tls=None if flags.tls is None else flags.tls == "on",
        advertise=parse_advertised(flags.advertise) if flags.advertise else "",
        rendezvous_addresses=parse_addresses(flags.rendezvous_address),
        keep_days=keep_days,
        keep_groups=keep_groups,
    )
    require_reachable(config)
    return config
