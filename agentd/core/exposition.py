"""Measurements as Prometheus reads them (text format 0.0.4).

Written here: everything is looked at when somebody asks, so of a client library only this page would be used, and its
registry, collectors and server would cost every host a megabyte."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"
Number = float | int
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One name. samples: `(suffix, labels, value)`. unit is part of the name; a family without samples is not there:
    what is not known is not 0."""

    name: str
    kind: str
    about: str
    samples: Sequence[tuple[str, Labels, Number]]


def gauge(name: str, about: str, value: Number | bool | None) -> Family:
    return Family(name, GAUGE, about, () if value is None else (("", (), value),))


def counter(name: str, about: str, value: Number) -> Family:
    return Family(name, COUNTER, about, (("", (), value),))


def gauges(name: str, about: str, label: str, values: Mapping[str, Number]) -> Family:
    return Family(name, GAUGE, about, [("", ((label, key),), value) for key, value in sorted(values.items())])


@dataclass(slots=True)
class Spread:
    """How long something took, in buckets of seconds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total_s: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, took_s: float) -> None:
        self.counts[bisect_left(self.bounds, took_s)] += 1
        self.total_s += took_s

    def samples(self, labels: Labels = ()) -> Iterator[tuple[str, Labels, Number]]:
        """Each bucket holds all that took no longer than its bound."""
        below = 0
        for bound, count in zip((*map(_number, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield "_bucket", (*labels, ("le", bound)), below
        yield "_sum", labels, self.total_s
        yield "_count", labels, below


def exposition(families: Iterable[Family]) -> bytes:
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_escaped(family.about)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for suffix, labels, value in family.samples:
            said = ",".join(f'{name}="{_escaped(text, quoted=True)}"' for name, text in labels)
            lines.append(f"{family.name}{suffix}{{{said}}} {_number(value)}" if said else _bare(family, suffix, value))
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _bare(family: Family, suffix: str, value: Number) -> str:
    return f"{family.name}{suffix} {_number(value)}"


def _number(value: Number) -> str:
    return str(int(value)) if isinstance(value, int) else repr(value)


def _escaped(text: str, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text
