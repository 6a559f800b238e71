"""What this host sees of what a group may resume from: the newest complete checkpoint, or the path that it names."""

import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentd.checkpoints.fenced import open_fenced
from agentd.claims.task_paths import shown_refusal, source_refusal
from agentd.core.claim import ClaimRefused, allowed_root
from schemas.rules.checkpoints.fence import FencedDirectory
from schemas.rules.checkpoints.named import NamedSight, missing, named_sight
from schemas.rules.checkpoints.probe import FRAMEWORKS, probe
from schemas.rules.checkpoints.sight import sight_of
from schemas.states import RESUME_FROM_CHECKPOINT

log = logging.getLogger(__name__)

# Of a group that names none: its own `step-N` directories count, and what trainers on PyTorch save.
_NO_FRAMEWORK = "ddp"


@dataclass(frozen=True, slots=True)
class Seen:
    """resume: `{path, step, source}`, or None where nothing is complete; step is None where the name tells none. sees:
    `{pick, digest, text}`, to be compared with the other nodes'; of a path that the document names with `field`, and
    with `code` where no rank can begin there."""

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


def look_at(
    path: str,
    framework: str | None,
    roots: Sequence[str],
    private: Sequence[str] = (),
    shown_from: str | None = None,
) -> Seen | ClaimRefused:
    """path: of the document; shown_from: the source of the mount that shows it to a container. One that is missing or
    not complete is told, not refused: what the other nodes see tells whether the path is wrong or the storage not
    shared. Raises OSError."""
    if refusal := source_refusal(RESUME_FROM_CHECKPOINT, path, roots, private):
        return refusal
    if shown_from is not None and (refusal := shown_refusal(RESUME_FROM_CHECKPOINT, path, shown_from, roots, private)):
        return refusal
    real = os.path.realpath(path)
    # A stem of TensorFlow's is no file itself.
    index = [f"{real}.index"] if framework == "tensorflow" else []
    there = next((one for one in (real, *index) if os.path.exists(one)), None)
    if there is None:
        sight = missing(path)
    elif not os.path.isfile(there) and not os.path.isdir(there):
        said = f"{RESUME_FROM_CHECKPOINT} {path} is neither a directory nor a file on this host"
        return ClaimRefused("resume_refused", said, True)
    elif not os.access(there, os.R_OK):
        said = f"{RESUME_FROM_CHECKPOINT} {path} cannot be read by this agent's user"
        return ClaimRefused("resume_unreadable", said)
    else:
        sight = _named(path, real, framework, roots)
    log.info("%s: %s", RESUME_FROM_CHECKPOINT, sight.text)
    resume = {"path": path, "step": sight.step, "source": "document"} if sight.pick else None
    return Seen(resume, sight.to_dict())


def _named(path: str, real: str, framework: str | None, roots: Sequence[str]) -> NamedSight:
    above, name = os.path.split(real)
    # What lies beside it tells what it is; nothing outside of what is allowed is asked.
    rules = rules_of(framework) if allowed_root(above, roots) is not None else None
    with open_fenced(above) as root:
        return named_sight(root, name, path, rules)
