"""For how long nothing has moved, as far as it was watched."""

from typing import NamedTuple


class Quiet(NamedTuple):
    """seconds: since the last sign of life. exact: False where none was seen since the watch began, so that it may have
    been quiet for longer."""

    seconds: float
    exact: bool


class QuietWatch:
    """Times are of one clock that never goes back, in seconds. gap_s: nobody looked for longer than that: what was
    before tells nothing any more."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._began: float | None = None
        self._moved: float | None = None
        self._looked = 0.0

    def note(self, now: float, moving: bool | None) -> None:
        """moving: None where it could not be seen; that is not rest, and the watch begins anew."""
        if moving is None:
            self._began = self._moved = None
            return
        if self._began is None or now - self._looked > self._gap_s:
            self._began, self._moved = now, None
        self._looked = now
        if moving:
            self._moved = now

    def quiet(self, now: float) -> Quiet | None:
        """None where it cannot be seen."""
        if self._began is None:
            return None
        return Quiet(now - self._began, False) if self._moved is None else Quiet(now - self._moved, True)
