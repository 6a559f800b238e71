"""What names say: steps, temporaries, single segments. A name must match as a whole; numbers compare as numbers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# `ep1-ba200` is Composer's: the epoch and the batch. Before the word may stand letters of any script; digits are ASCII.
_WORDS = r"(?P<word>step|iter|iteration|checkpoint|ckpt|epoch|ba)"
_STEPPED = re.compile(rf"(?:(?:[^\W_][\w.=+-]*[-_.=])?{_WORDS}[-_=]?)?(?P<number>[0-9]{{1,18}})\Z")
# Patterns put metrics behind the step; `train_loss_step=0.35` is one.
_LIGHTNING = re.compile(
    r"(?:[^/]*[-_. ])?step[=_-]?(?P<number>[0-9]{1,18})(?![0-9]|\.[0-9])(?:[-_. ][^/]*?)??"
    r"(?:-v(?P<version>[0-9]{1,9}))?\.ckpt\Z"
)
_DATA_END = (
    r"\.(?:safetensors|bin|pt|pth|ckpt|distcp|metadata|json|pkl|npz|npy|h5|pdparams|pdopt|index|data-[0-9]+-of-[0-9]+)"
)
_TEMPORARY = re.compile(
    r"\.tmp|\.old-|tmp[-_.]|.*(?:\.tmp(?:[-.].*)?|\.inprogress|\.incomplete|\.partial|\.part|[._]temp"
    r"|\.orbax-checkpoint-tmp.*"
    # of rsync (`.NAME.xxxxxx`), of aws s3 cp (`NAME.xxxxxxxx`), of gsutil
    rf")\Z|\..*{_DATA_END}\.[A-Za-z0-9]{{6}}\Z|.*{_DATA_END}\.[0-9A-Fa-f]{{8}}\Z|.*_\.gstmp\Z"
)
_TEMPORARY_PART = re.compile(
    rf"tmp|temp|\.old-|\.inprogress|\.incomplete|\.part|{_DATA_END}\.(?:[A-Za-z0-9]{{6}}|[0-9A-Fa-f]{{8}})(?:/|\Z)"
)
_DIGITS = re.compile(r"[0-9]+")
# Files a network file system leaves where one was removed while open.
_SILLY_RENAME = ".nfs"
# Where trainers keep their checkpoints one level down.
CONTAINERS = ("checkpoint", "checkpoints", "ckpt", "ckpts")
# Lightning's own place: `lightning_logs/version_N/checkpoints`, another version at each start.
LIGHTNING_LOGS, LIGHTNING_VERSION = "lightning_logs", re.compile(r"version_[0-9]{1,9}\Z")
# Where its pattern has a directory: `{epoch}/{step}` makes `epoch=3/step=40.ckpt`.
LIGHTNING_EPOCH = re.compile(r"epoch=[0-9]{1,9}\Z")
NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class StepName:
    """step: None where the number counts saves or epochs. `newer` orders names of one tree."""

    number: int
    step: int | None
    version: int = 0

    @property
    def count(self) -> tuple[bool, int]:
        """The same of all that was saved at once."""
        return self.step is not None, self.number

    @property
    def newer(self) -> tuple[bool, int, int]:
        return *self.count, self.version


def step_of(name: str) -> StepName | None:
    """Of a directory: `step-20`, `global_step20`, `checkpoint-20`, `iter_000020`, `0000000020`, `epoch_1`,
    `epoch=0-step=20.ckpt`."""
    if (found := lightning_step(name)) is not None:
        return found
    match = _STEPPED.match(name)
    if match is None or is_temporary(name):
        return None
    number = int(match["number"])
    # Accelerate's `checkpoint_3` is the fourth save, whatever the step was.
    counts_saves = match["word"] == "epoch" or name.startswith("checkpoint_")
    return StepName(number, None if counts_saves else number)


def lightning_step(name: str) -> StepName | None:
    match = _LIGHTNING.match(name)
    return StepName(int(match["number"]), int(match["number"]), int(match["version"] or 0)) if match else None


def is_temporary(name: str) -> bool:
    return _TEMPORARY.match(name) is not None


def may_be_temporary(names: Iterable[str]) -> bool:
    """False where no name of them is temporary: one search for all, since most directories hold none."""
    return _TEMPORARY_PART.search("/".join(names)) is not None


def looks_unfinished(name: str) -> bool:
    """A temporary name with a number in it: somebody's save that never got its own name."""
    return is_temporary(name) and _DIGITS.search(name) is not None


def is_silly_rename(name: str) -> bool:
    return name.startswith(_SILLY_RENAME)


def is_single_name(text: str) -> bool:
    """Fit to be looked up in one directory, and printable."""
    return (
        text not in ("", ".", "..")
        and "/" not in text
        and "\\" not in text
        and text.isprintable()
        and len(text.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX
    )


def shown(name: str) -> str:
    """Printable, whatever the bytes of a name were."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else _escaped(c) for c in name)


def _escaped(character: str) -> str:
    # A byte of a name that is no UTF-8 comes as a half surrogate.
    byte = ord(character) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else character.encode("unicode_escape").decode()


def some(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 4 more`, in the order of their names."""
    listed = sorted(names)
    text = ", ".join(shown(name) for name in listed[:most])
    return f"{text} and {len(listed) - most} more" if len(listed) > most else text
