"""Writes what an attempt is into its checkpoint directory before it starts. For probes and people; where it cannot be
written the attempt starts all the same."""

import contextlib
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agentd.checkpoints.removal import made_directory
from agentd.claims.checkpoint_probe import open_allowed
from agentd.telemetry.blocking_look import BlockingLook, StillLooking
from schemas.instants import iso_utc
from schemas.rules.checkpoints.manifest import DIRECTORY, manifest_name, manifest_number, manifest_of

log = logging.getLogger(__name__)
_DEADLINE_S = 5.0
KEPT = 64
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Row = Mapping[str, Any]


class RunManifests:
    """roots: what is allowed on this host."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(roots)
        self._look = BlockingLook()

    async def write(self, row: Row, group: Row) -> None:
        """Of rank 0's host alone. Raises nothing."""
        directory = group["checkpoint_path"]
        if int(row["rank"]) != 0 or directory is None:
            return
        manifest = manifest_of(group, iso_utc(time.time_ns() // 1_000_000))
        try:
            await self._look.take(_DEADLINE_S, lambda: self._write(directory, int(row["token"]), manifest))
        except (OSError, StillLooking, TimeoutError) as error:
            log.warning("no manifest of %s in %s: %s", group["group_id"], directory, error or "it does not answer")

    def _write(self, directory: str, token: int, manifest: Mapping[str, Any]) -> None:
        with open_allowed(directory, self._roots) as root:
            place = made_directory(DIRECTORY, root.descriptor, 0o755)
        try:
            _replace(place, manifest_name(token), json.dumps(manifest, indent=1).encode())
            _forget_old(place)
        finally:
            os.close(place)


def _replace(place: int, name: str, data: bytes) -> None:
    """Whole or not at all; a link under either name is replaced, not followed."""
    work = f"{name}.tmp-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(work, dir_fd=place)
    with open(os.open(work, _NEW, 0o644, dir_fd=place), "wb") as file:
        file.write(data)
    os.rename(work, name, src_dir_fd=place, dst_dir_fd=place)


def _forget_old(place: int) -> None:
    numbers = sorted(number for name in os.listdir(place) if (number := manifest_number(name)) is not None)
    for number in numbers[:-KEPT]:
        with contextlib.suppress(OSError):
            os.unlink(manifest_name(number), dir_fd=place)
