"""What one node sees of a checkpoint that a document names by its path: it is begun from as it is, or not at all."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from schemas.rules.checkpoints.names import shown
from schemas.rules.checkpoints.probe import require_complete
from schemas.rules.checkpoints.sight import TEXT_MAX, digest_of
from schemas.rules.checkpoints.view import Directory, Incomplete, Unknown
from schemas.states import RESUME_FROM_CHECKPOINT, RESUME_INCOMPLETE, RESUME_MISSING

_PATH_TOLD = 160


@dataclass(frozen=True, slots=True)
class NamedSight:
    """pick: the path, "" where no rank can begin there, and then code says why; digest: equal where two nodes see the
    same; text: for people; step: None where its name tells none, or it is of no known layout."""

    pick: str
    digest: str
    text: str
    code: str = ""
    step: int | None = None

    def to_dict(self) -> dict[str, Any]:
        told = {"pick": self.pick, "digest": self.digest, "text": self.text, "field": RESUME_FROM_CHECKPOINT}
        return told | ({"code": self.code} if self.code else {})


def missing(path: str) -> NamedSight:
    digest = blake2b(RESUME_MISSING.encode(), digest_size=16).hexdigest()
    return NamedSight("", digest, f"{_told(path)} does not exist there", code=RESUME_MISSING)


def _told(path: str) -> str:
    """Its end, where it is long: four of them and what is wrong with each make one sentence."""
    return path if len(path) <= _PATH_TOLD else f"…{path[1 - _PATH_TOLD :]}"


def named_sight(root: Directory, name: str, path: str, framework: str | None) -> NamedSight:
    """name: in `root`; path: as the document has it; framework: whose layouts are known, None to know none."""
    code, step = "", None
    try:
        step = require_complete(root, framework, name)
        said = "is complete"
    except Unknown:
        said = "is of no layout that is known here, and taken as it is"
    except Incomplete as why:
        code, said = RESUME_INCOMPLETE, f"is not complete there: {shown(str(why))}"
    return NamedSight(
        pick="" if code else _told(path),
        digest=digest_of(root, name, said),
        text=f"{_told(path)} {said}"[:TEXT_MAX],
        code=code,
        step=step,
    )
