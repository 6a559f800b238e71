"""A run: all event files of one directory, merged per tag. The result depends on what is in the files, never on the
order in which their bytes were read.

A resumed job writes a new file whose steps begin where its checkpoint was. Per tag, the first point of a file
supersedes what earlier files hold at that step or after it and wrote before it; a session start inside a file
(`purge_step`) does so for every tag. Steps that go back within a file are the script's own business and stay.
"""

from math import inf, nextafter

from schemas.rules.tfevents.curve import Curve
from schemas.rules.tfevents.file_order import started_at
from schemas.rules.tfevents.scan import MOST_TAGS, FileScan, ScanPlace
from schemas.rules.tfevents.series import Cut, Series


class RunFile:
    """One file of a run. `scan.feed` takes its bytes."""

    def __init__(self, run: "Run", name: str, place: ScanPlace | None) -> None:
        self.name = name
        self.scan = FileScan(self, place)
        self.series: dict[str, Series] = {}
        self.first_points: dict[str, Cut] = {}
        self.session_cuts: list[Cut] = []
        self._run = run
        self._key: tuple[float, str] | None = None

    @property
    def key(self) -> tuple[float, str]:
        """Fixed before the file's first point is kept: a name without a time is placed by the first record's."""
        if self._key is None:
            named = started_at(self.name)
            began = float(named) if named is not None else self.scan.first_wall
            if began is None:
                return 0.0, self.name
            self._key = began, self.name
        return self._key

    def series_for(self, tag: str, step: int, wall: float) -> Series | None:
        if not self._run.may_keep(tag):
            return None
        series = self.series[tag] = Series()
        self.first_points[tag] = first = Cut(step, wall)
        for file in self._run.others(self):
            if file.key > self.key:
                for cut in file.cuts_of(tag):
                    series.cut(cut)
            elif tag in file.series:
                file.series[tag].cut(first)
        return series

    def session_starts(self, step: int, wall: float) -> None:
        # The start itself carries the time of the newest point it can take with it.
        cut = Cut(step, nextafter(wall, inf))
        self.session_cuts.append(cut)
        for series in self.series.values():
            series.drop_from(step)
        for file in self._run.others(self):
            if file.key < self.key:
                for series in file.series.values():
                    series.cut(cut)

    def cuts_of(self, tag: str) -> list[Cut]:
        """What this file does to the tag's points in earlier files."""
        first = self.first_points.get(tag)
        return self.session_cuts if first is None else [first, *self.session_cuts]


class Run:
    def __init__(self) -> None:
        self._files: dict[str, RunFile] = {}
        self._tags: dict[str, None] = {}

    def open(self, name: str, place: ScanPlace | None = None) -> FileScan:
        """A scan for a file not seen before; feed it the file's bytes from `scan.offset` on."""
        file = self._files[name] = RunFile(self, name, place)
        return file.scan

    def files(self) -> list[RunFile]:
        """Oldest first."""
        return sorted(self._files.values(), key=lambda file: file.key)

    def others(self, file: RunFile) -> list[RunFile]:
        return [other for other in self._files.values() if other is not file]

    def may_keep(self, tag: str) -> bool:
        if tag not in self._tags and len(self._tags) >= MOST_TAGS:
            return False
        self._tags[tag] = None
        return True

    def tags(self) -> list[str]:
        """In the order in which they first appeared."""
        return list(self._tags)

    def curve(self, tag: str) -> Curve:
        parts = [file.series[tag] for file in self.files() if tag in file.series]
        for part in parts:
            part.settle()
        return Curve(parts)
