"""Which checkpoints `keep_last_n` removes: a plan, made of what is there and carried out elsewhere.

Only what is complete, and superseded: n complete ones have a higher number and were written later. What bears one
number, as a model and its optimizer in a file each, stays or goes together. What is incomplete is nobody's to judge
again: it may be one that is being written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.rules.checkpoints.manifest import DIRECTORY
from schemas.rules.checkpoints.marked import loose_step
from schemas.rules.checkpoints.megatron import nemo_step
from schemas.rules.checkpoints.names import CONTAINERS, lightning_step, shown
from schemas.rules.checkpoints.probe import Verdict, verdicts
from schemas.rules.checkpoints.saved import saved_of
from schemas.rules.checkpoints.trainer import STATE, read_state
from schemas.rules.checkpoints.view import Directory, Incomplete, opened

# Of one plan. What is left comes with the next.
REMOVED_MAX = 16
# Whether it counts steps, and which.
_Number = tuple[bool, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """remove: (path below the directory, mark of that save), the oldest first; kept: (path, why) of what stays, newest
    first; more: whether there was more to remove. Carried out twice it removes no more than once."""

    remove: tuple[tuple[str, str], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    more: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "remove": [list(item) for item in self.remove],
            "kept": [list(item) for item in self.kept],
            "more": self.more,
        }

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> "Plan":
        kept = tuple((str(path), str(why)) for path, why in value["kept"])
        remove = tuple((str(path), str(mark)) for path, mark in value["remove"])
        return Plan(remove, kept, bool(value["more"]))


def plan_retention(
    root: Directory, framework: str, keep: int, protected: Sequence[str] = (), most: int = REMOVED_MAX
) -> Plan:
    """keep: at least 1. protected: paths below `root` that stay whatever comes, as the one that was resumed from."""
    superseded: list[tuple[_Number, str, str]] = []
    kept: list[tuple[str, str]] = []
    stays: dict[_Number, str] = {}
    newest: set[_Number] = set()
    spared = set(protected)
    oldest_kept_ns: int | None = None
    try:
        for item in verdicts(root, framework):
            number = item.candidate.order.count
            why = _why_kept(root, framework, item, spared)
            if item.why is None and (number in newest or len(newest) < keep):
                newest.add(number)
                spared |= _named_best(root, item)
                oldest_kept_ns = min(oldest_kept_ns or _written_ns(root, item), _written_ns(root, item))
                why = f"one of the newest {keep}"
            elif why is None and (oldest_kept_ns is None or _written_ns(root, item) > oldest_kept_ns):
                why = "was written later than newer ones"
            if why is None:
                superseded.append((number, item.path, saved_of(root, item.path).mark))
                continue
            kept.append((shown(item.path), shown(why)))
            if item.why is None:
                stays.setdefault(number, item.path)
    except Incomplete as error:
        # What cannot be looked at now is looked at again.
        return Plan((), ((".", shown(str(error))),))
    remove = [(path, mark) for number, path, mark in reversed(superseded) if number not in stays]
    kept += [(shown(path), shown(f"belongs to {stays[at]}")) for at, path, _ in superseded if at in stays]
    return Plan(tuple(remove[:most]), tuple(kept), len(remove) > most)


def _why_kept(root: Directory, framework: str, item: Verdict, spared: set[str]) -> str | None:
    name = item.candidate.name
    if item.why is not None:
        return f"is not complete: {item.why}"
    if item.path in spared or name in spared:
        return "was resumed from, or is named by another"
    if item.tracker is not None and item.tracker in (name, str(item.candidate.order.number)):
        return "is what the framework's own record names"
    if lightning_step(name) is not None:
        return "which one Lightning calls its best is in a pickle"
    if framework == "megatron" and nemo_step(name) is not None:
        return "which ones NeMo calls its best, by the numbers in their names, is its own to say"
    if not item.candidate.in_directory and loose_step(name) is None:
        return "it is neither one directory nor a file with .complete beside it"
    place, _, _ = item.path.rpartition("/")
    if place and place not in CONTAINERS:
        return f"lies deeper than what is removed, in {place}"
    if place:
        with root.open(place) as below:
            if DIRECTORY in below.names():
                return f"{place} is the checkpoint_path of another group"
    return None


def _named_best(root: Directory, item: Verdict) -> set[str]:
    """HF Trainer loads at its end what it found to be the best."""
    try:
        with opened(root, item.path) as directory:
            best = _best_of(directory)
    except Incomplete:
        return set()
    return {best} if best else set()


def _best_of(directory: Directory) -> str:
    if directory.names().get(STATE) != "file":
        return ""
    best = read_state(directory).get("best_model_checkpoint")
    return best.rstrip("/").rpartition("/")[2] if isinstance(best, str) else ""


def _written_ns(root: Directory, item: Verdict) -> int:
    return saved_of(root, item.path).written_ns
