"""What the ledger of a group measured: how large a checkpoint is, how long it takes, how far two are apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

# Of the last ones: a run changes what and how often it saves.
_LAST = 9


@dataclass(frozen=True, slots=True)
class Measures:
    """Medians, None where nothing tells. bytes_each: of one; took_s: from its first file to its last; every_s: between
    two of one attempt; kept: complete ones that keep_last_n has not removed."""

    bytes_each: int | None
    took_s: float | None
    every_s: float | None
    kept: int


def measured(rows: Sequence[Mapping[str, Any]]) -> Measures:
    """rows: of the ledger, oldest first."""
    complete = [row for row in rows if row["complete"]]
    size = _median([row["bytes"] for row in complete if row["bytes"]])
    # The times of one file do not tell when its writing began.
    took_ms = _median([row["took_ms"] for row in complete if row["took_ms"]])
    every_ms = _median(_apart(complete))
    kept = sum(row["removed_ms"] is None for row in complete)
    return Measures(
        None if size is None else round(size),
        None if took_ms is None else took_ms / 1000,
        None if every_ms is None else every_ms / 1000,
        kept,
    )


def _apart(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Within one attempt: between two lies also the wait in the queue."""
    own = [row for row in rows if row["attempt"] and row["saved_ms"] is not None]
    gaps = [later["saved_ms"] - row["saved_ms"] for row, later in pairwise(own) if row["attempt"] == later["attempt"]]
    return [gap for gap in gaps if gap > 0]


def _median(values: Sequence[int]) -> float | None:
    return median(values[-_LAST:]) if values else None
