"""Checkpoints of a group, and what would be lost without them."""

from typing import TypedDict


class NewestCheckpoint(TypedDict):
    """As the host of rank 0 last saw it. attempt: None where it was there before this group's attempts."""

    name: str
    step: int | None
    bytes: int
    saved_at: str | None
    attempt: int | None


class WorkAtRisk(TypedDict):
    """since: the last checkpoint of this attempt where `saved`, else its start."""

    gpu_hours: float
    since: str | None
    saved: bool
    text: str


class StopAfter(TypedDict):
    by: str
    at: str | None
    deadline_at: str | None


class Restore(TypedDict):
    """result: `went_on` where that attempt saved a later one, `completed`, `under_way` or `ended_before_the_next`."""

    attempt: int
    result: str


class Checkpoint(TypedDict):
    """name: below checkpoint_path. attempt: that wrote it, None where it was there before. why: what is wrong with one
    that is not complete. took_s: from its first file to its last; after_s: since the one before. removed_at: by
    keep_last_n."""

    name: str
    step: int | None
    attempt: int | None
    complete: bool
    why: str
    bytes: int | None
    files: int | None
    saved_at: str | None
    took_s: float | None
    after_s: float | None
    restores: list[Restore]
    removed_at: str | None


class DiskAdvice(TypedDict):
    """bytes_each, every_s: medians of the last ones. free_bytes: on the file system of checkpoint_path, as the host of
    rank 0 told with the newest one. full_in_s: where nothing is removed; fits: where keep_last_n removes. None: not
    known."""

    bytes_each: int | None
    every_s: float | None
    free_bytes: int | None
    full_in_s: float | None
    fits: bool | None
    text: str


class IntervalAdvice(TypedDict):
    """interval_s: sqrt(2 * cost_s * mtbf_s), to two digits. cost_s: of a save; mtbf_s: between two failures of the
    group. at_least: none was seen, so both are lower bounds. None: not known."""

    interval_s: float | None
    at_least: bool
    cost_s: float | None
    mtbf_s: float | None
    text: str


class CheckpointAdvice(TypedDict):
    """disk: None where the group writes no more."""

    disk: DiskAdvice | None
    interval: IntervalAdvice


class Checkpoints(TypedDict):
    """advice: None where it has no checkpoint_path."""

    group_id: str
    checkpoint_path: str | None
    keep_last_n: int | None
    at_risk: WorkAtRisk | None
    advice: CheckpointAdvice | None
    checkpoints: list[Checkpoint]
