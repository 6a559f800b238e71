"""The newest complete checkpoint that this host sees."""

import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentd.checkpoints.fenced import open_fenced
from agentd.core.claim import allowed_root
from schemas.rules.checkpoints.fence import FencedDirectory
from schemas.rules.checkpoints.probe import FRAMEWORKS, probe
from schemas.rules.checkpoints.sight import sight_of

log = logging.getLogger(__name__)

# Of a group that names none: its own `step-N` directories count, and what trainers on PyTorch save.
_NO_FRAMEWORK = "ddp"


@dataclass(frozen=True, slots=True)
class Seen:
    """resume: `{path, step, source}`, or None where nothing is complete; step is None where the name tells none. sees:
    `{pick, digest, text}`, to be compared with the other nodes'."""

    resume: dict[str, Any] | None
    sees: dict[str, Any]


def rules_of(framework: str | None) -> str:
    return framework if framework is not None and framework in FRAMEWORKS else _NO_FRAMEWORK


def open_allowed(directory: str, roots: Sequence[str]) -> FencedDirectory:
    """roots: what is allowed, asked again, since a link may have changed after the path was checked. Raises OSError."""
    real = os.path.realpath(directory)
    if allowed_root(real, roots) is None:
        raise OSError(errno.ELOOP, f"{directory} now leads through a link to {real}, outside what is allowed")
    return open_fenced(real)


def look(directory: str, framework: str | None, roots: Sequence[str]) -> Seen:
    """Raises OSError."""
    with open_allowed(directory, roots) as root:
        found = probe(root, rules_of(framework))
        sight = sight_of(root, found)
    log.info("checkpoints in %s: %s", directory, found.reason, extra={"rejected": found.rejected[:20]})
    if found.pick is None:
        return Seen(None, sight.to_dict())
    path = f"{directory.rstrip('/')}/{found.pick}"
    return Seen({"path": path, "step": found.step, "source": "checkpoint_path"}, sight.to_dict())
