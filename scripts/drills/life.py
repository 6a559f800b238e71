"""Which attempts of a group were alive when, from the proof of life that the trainer appends on every rank."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Span:
    """CLOCK_BOOTTIME nanoseconds of the first and last proof of one attempt, over all ranks."""

    attempt: int
    first_ns: int
    last_ns: int


def spans(trace: Path) -> list[Span]:
    """By attempt; a line torn by a kill counts for nothing."""
    seen: dict[int, tuple[int, int]] = {}
    lines = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    for line in lines:
        parts = line.split()
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            continue
        attempt, at_ns = int(parts[0]), int(parts[2])
        first, last = seen.get(attempt, (at_ns, at_ns))
        seen[attempt] = (min(first, at_ns), max(last, at_ns))
    return [Span(attempt, first, last) for attempt, (first, last) in sorted(seen.items())]


def overlap(trace: Path) -> str | None:
    """What proves that two attempts were alive at once, or None."""
    found = spans(trace)
    for old in found:
        for new in found:
            if old.attempt < new.attempt and old.last_ns >= new.first_ns:
                late_ms = (old.last_ns - new.first_ns) / 1e6
                return f"attempt {old.attempt} still wrote {late_ms:.0f} ms after attempt {new.attempt} had begun"
    return None
