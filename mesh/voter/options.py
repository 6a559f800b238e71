"""The voter's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROFILES = ("fast", "lan", "wan")


@dataclass(frozen=True, slots=True)
class Timers:
    """tick_s is the unit of the others. Election timeouts are drawn from [election_ticks, 2 * election_ticks)."""

    tick_s: float
    heartbeat_ticks: int
    election_ticks: int

    @property
    def election_min_s(self) -> float:
        return self.tick_s * self.election_ticks


# An election timeout must be far above a slow fsync plus a round trip. A tick is a heartbeat: finer ticks would only
# cost wake-ups, as voters' ticks are out of step anyway.
TIMERS = {
    "fast": Timers(0.1, heartbeat_ticks=1, election_ticks=10),
    "lan": Timers(0.2, heartbeat_ticks=1, election_ticks=6),
    "wan": Timers(0.5, heartbeat_ticks=1, election_ticks=6),
}


@dataclass(frozen=True, slots=True)
class Options:
    data_dir: Path
    raft_id: int
    roster: Path
    listen_host: str
    listen_port: int
    token: str
    profile: str
    control_fd: int | None
    tls_dir: Path | None = None


def parse_options(argv: Sequence[str] | None = None) -> Options:
    """Exits 2 with a message for a wrong command line, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m mesh.voter", description="One voter of a mesh, run by its agent.")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--raft-id", required=True, type=int)
    parser.add_argument("--roster", required=True, type=Path)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--tls-dir", type=Path, help="of this host's certificate; without it the token opens all")
    parser.add_argument("--profile", required=True, choices=PROFILES)
    parser.add_argument(
        "--control-fd", type=int, help="ends the voter when it closes; controllers are expected to beat"
    )
    args = parser.parse_args(argv)
    host, _, port = args.listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        parser.error(f"--listen {args.listen!r} is not HOST:PORT")
    if args.raft_id <= 0:
        parser.error("--raft-id is a positive number")
    try:
        token = args.token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"--token-file {args.token_file}: {error}")
    if not token:
        parser.error(f"--token-file {args.token_file} is empty")
    return Options(
        args.data_dir,
        args.raft_id,
        args.roster,
        host.strip("[]"),
        int(port),
        token,
        args.profile,
        args.control_fd,
        args.tls_dir,
    )
