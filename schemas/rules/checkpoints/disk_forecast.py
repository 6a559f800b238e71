"""Whether the disk has room for the checkpoints to come."""

from dataclasses import dataclass

from schemas.rules.checkpoints.measures import Measures
from schemas.rules.rough_figures import rough_size, rough_text, rough_time


@dataclass(frozen=True, slots=True)
class DiskForecast:
    """full_in_s: at this rate, where nothing is removed; fits: whether those that keep_last_n keeps have room. None:
    not known, or answered by the other."""

    full_in_s: float | None
    fits: bool | None
    text: str


def disk_forecast(measures: Measures, keep: int | None, free_bytes: int | None) -> DiskForecast:
    """keep: keep_last_n where it removes anything. free_bytes: when the newest checkpoint was seen."""
    each = measures.bytes_each
    missing = ["no checkpoint of it was measured yet"] if not each else []
    missing += ["the free space of its directory is not known"] if free_bytes is None else []
    if not each or free_bytes is None:
        return DiskForecast(None, None, f"no disk forecast: {' and '.join(missing)}")
    if keep is not None:
        return _bounded(measures.kept, each, keep, free_bytes)
    facts = f"{rough_size(each)} each, {rough_size(free_bytes)} free, nothing is removed without keep_last_n"
    if measures.every_s is None:
        room = f"room for about {rough_text(free_bytes // each)} more, how often it saves is not known yet"
        return DiskForecast(None, None, f"{room}: {facts}")
    full_in_s = free_bytes / each * measures.every_s
    text = f"disk full in about {rough_time(full_in_s)} at this rate: one in {rough_time(measures.every_s)}, {facts}"
    return DiskForecast(full_in_s, None, text)


def _bounded(kept: int, each: int, keep: int, free_bytes: int) -> DiskForecast:
    """A new one is whole before the oldest goes, so one more than `keep` are there for a moment."""
    needed = max(1, keep + 1 - kept) * each
    fits = needed <= free_bytes
    verdict = f"the last {keep} fit on the disk" if fits else f"the disk is too small for the last {keep}"
    facts = f"{rough_size(each)} each, {rough_size(needed)} more at most, {rough_size(free_bytes)} free"
    return DiskForecast(None, fits, f"{verdict}: {facts}")
