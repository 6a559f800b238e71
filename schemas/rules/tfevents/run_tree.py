"""The runs of a directory tree. Writers make sub-runs by directory (`train/`, `validation/`, `version_0/`): their tags
are named with the directory before them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite

from schemas.rules.tfevents.curve import Curve
from schemas.rules.tfevents.frames import Unreadable
from schemas.rules.tfevents.loss_tag import Candidate, loss_tag
from schemas.rules.tfevents.run import Run


@dataclass(frozen=True, slots=True)
class NamedCurve:
    directory: str
    tag: str
    curve: Curve

    @property
    def name(self) -> str:
        return f"{self.directory}/{self.tag}" if self.directory else self.tag


@dataclass(frozen=True, slots=True)
class FileDamage:
    """file: path below the directory. newest: no file of its run began later, so the run is blind from there on."""

    file: str
    unreadable: Unreadable | None
    newest: bool
    bad_crc: int
    bad_proto: int
    refused: int


def loss_of(curves: Iterable[NamedCurve], chosen: str | None = None) -> NamedCurve | None:
    """The curve that stands for the run; see `loss_tag`."""
    named = {(item.directory, item.tag): item for item in curves}
    candidates = [
        Candidate(item.directory, item.tag, len(item.curve), last.wall if isfinite(last.wall) else 0.0)
        for item in named.values()
        if (last := item.curve.last) is not None
    ]
    best = loss_tag(candidates, chosen)
    return None if best is None else named[best.directory, best.tag]


class RunTree:
    """runs: by directory below the root, "" for the root itself."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}

    def run(self, directory: str) -> Run:
        if directory not in self.runs:
            self.runs[directory] = Run()
        return self.runs[directory]

    def forget(self, directory: str) -> None:
        self.runs.pop(directory, None)

    @property
    def has_files(self) -> bool:
        return any(run.files() for run in self.runs.values())

    def curves(self) -> list[NamedCurve]:
        """Sorted by name."""
        found = [
            NamedCurve(directory, tag, run.curve(tag)) for directory, run in self.runs.items() for tag in run.tags()
        ]
        return sorted(found, key=lambda item: item.name)

    def damages(self) -> Iterator[FileDamage]:
        """Files with anything in them that could not be read or kept."""
        for directory, run in sorted(self.runs.items()):
            files = run.files()
            for file in files:
                scan = file.scan
                if scan.unreadable or scan.bad_crc or scan.bad_proto or scan.refused:
                    name = f"{directory}/{file.name}" if directory else file.name
                    newest = file is files[-1]
                    yield FileDamage(name, scan.unreadable, newest, scan.bad_crc, scan.bad_proto, scan.refused)
