"""The newest complete checkpoint that this host sees."""

import errno
import logging
import os
from collections.abc import Sequence
from typing import Any

from agentd.checkpoints.fenced import open_fenced
from agentd.core.claim import allowed_root
from schemas.rules.checkpoints.probe import FRAMEWORKS, probe

log = logging.getLogger(__name__)

# Of a group that names none: its own `step-N` directories count, and what trainers on PyTorch save.
_NO_FRAMEWORK = "ddp"


def newest_complete(directory: str, framework: str | None, roots: Sequence[str]) -> dict[str, Any] | None:
    """`{path, step, source}`, or None where there is none; step is None where the name tells none. roots: what is
    allowed, asked again, since a link may have changed after the path was checked. Raises OSError."""
    real = os.path.realpath(directory)
    if allowed_root(real, roots) is None:
        raise OSError(errno.ELOOP, f"{directory} now leads through a link to {real}, outside what is allowed")
    with open_fenced(real) as root:
        found = probe(root, framework if framework is not None and framework in FRAMEWORKS else _NO_FRAMEWORK)
    log.info("checkpoints in %s: %s", directory, found.reason, extra={"rejected": found.rejected[:20]})
    if found.pick is None:
        return None
    return {"path": f"{directory.rstrip('/')}/{found.pick}", "step": found.step, "source": "checkpoint_path"}
