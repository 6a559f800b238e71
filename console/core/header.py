"""The first line of every screen: where one is, and whether the mesh is well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from console.core import line
from console.core.format import clipped, width
from console.core.line import Line, Span, joined, line_width, spread

BAR_CELLS = 10
CRUMB_CELLS = 12  # of a name are always there


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """None: not known yet. silent_s: how long nothing was heard; what is shown is as old as that."""

    mesh: str
    attached: str
    leader: str | None
    voters: int
    voters_up: int | None
    nodes_ready: int
    nodes: int
    cards_used: int
    cards: int
    waiting: int
    alerts: int
    silent_s: float
    trouble: str
    read_only: bool
    loaded: bool


def header(crumbs: Sequence[str], facts: HeaderFacts, cells: int) -> Line:
    """The narrower the terminal, the fewer facts: first the bar, then what is well, then the mesh, then the end of a
    long name, then the least of what is wrong."""
    where = _where((facts.mesh or "mesh", *crumbs), facts.read_only)
    parts = _parts(facts, BAR_CELLS)
    if not _fits(where, parts, cells):
        parts = _parts(facts, 0)
    while not _fits(where, parts, cells) and (well := _first_well(parts)) is not None:
        parts.pop(well)
    if not _fits(where, parts, cells):
        where = _where(crumbs, facts.read_only)
    if not _fits(where, parts, cells):
        where = _where(_clipped(crumbs, _over(where, parts, cells)), facts.read_only)
    while len(parts) > 1 and not _fits(where, parts, cells):
        parts.pop()
    return spread(where, (*joined(parts, (" · ", line.RULE)), (" ", line.TEXT)), cells)


def _where(crumbs: Sequence[str], read_only: bool) -> Line:
    where: list[Span] = [(" ", line.TEXT), (crumbs[0], line.DIM if len(crumbs) > 1 else line.TITLE)]
    for crumb in crumbs[1:]:
        where += [(" ▸ ", line.RULE), (crumb, line.TITLE)]
    if read_only:
        where += [("  read-only", line.WARN)]
    return tuple(where)


def _over(where: Line, parts: Sequence[Line], cells: int) -> int:
    """By how many cells it is too much."""
    return line_width(joined(parts, (" · ", line.RULE))) + line_width(where) + 3 - cells


def _fits(where: Line, parts: Sequence[Line], cells: int) -> bool:
    return _over(where, parts, cells) <= 0


def _clipped(crumbs: Sequence[str], over: int) -> list[str]:
    longest = max(range(len(crumbs)), key=lambda at: width(crumbs[at]))
    wide = width(crumbs[longest])
    return [
        clipped(crumb, max(wide - over, min(wide, CRUMB_CELLS))) if at == longest else crumb
        for at, crumb in enumerate(crumbs)
    ]


def _first_well(parts: Sequence[Line]) -> int | None:
    """None where one fact is left, or only what is wrong."""
    if len(parts) == 1:
        return None
    return next((at for at, part in enumerate(parts) if part[0][1] not in (line.WARN, line.BAD)), None)


def _parts(facts: HeaderFacts, bar_cells: int) -> list[Line]:
    if facts.trouble:
        return [((f"● {facts.trouble}", line.BAD),)]
    if not facts.loaded:
        return [(("connecting …", line.DIM),)]
    if facts.silent_s:
        return [((f"● no news for {facts.silent_s:.0f} s: what is shown may be old", line.BAD),)]
    parts: list[Line] = [((f"via {facts.attached}", line.DIM),), _leader(facts), _quorum(facts), _nodes(facts)]
    if facts.cards:
        parts.append(_cards(facts, bar_cells))
    parts.append(((f"queue {facts.waiting}", line.WAIT if facts.waiting else line.DIM),))
    if facts.alerts:
        parts.append(((f"▲ {facts.alerts}", line.WARN),))
    return [part for part in parts if part]


def _leader(facts: HeaderFacts) -> Line:
    if facts.leader is None:
        return ()
    return (("leader ", line.DIM), (facts.leader, line.TEXT)) if facts.leader else (("no leader", line.BAD),)


def _quorum(facts: HeaderFacts) -> Line:
    if facts.voters_up is None or not facts.voters:
        return ()
    spare = facts.voters_up - (facts.voters // 2 + 1)
    tone = line.BAD if spare < 0 else line.WARN if facts.voters_up < facts.voters else line.TEXT
    left = f"spare {spare}" if spare >= 0 else "no majority"
    if tone == line.TEXT:
        return (("quorum ", line.DIM), (f"{facts.voters_up}/{facts.voters}", tone))
    return ((f"quorum {facts.voters_up}/{facts.voters} ({left})", tone),)


def _nodes(facts: HeaderFacts) -> Line:
    if facts.nodes_ready < facts.nodes:
        return ((f"nodes {facts.nodes_ready}/{facts.nodes}", line.WARN),)
    return (("nodes ", line.DIM), (f"{facts.nodes}", line.TEXT))


def _cards(facts: HeaderFacts, bar_cells: int) -> Line:
    """Without room for the bar the two numbers alone: they say the share too."""
    if not bar_cells:
        return (("GPU ", line.DIM), (f"{facts.cards_used}/{facts.cards}", line.TEXT))
    share = facts.cards_used / facts.cards
    return (
        ("GPU ", line.DIM),
        (f"{facts.cards_used}/{facts.cards} ", line.TEXT),
        *bar(share, bar_cells),
        (f" {round(100 * share):>3}%", line.TEXT),
    )


_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, cells: int, tone: str = line.ACCENT) -> Line:
    """A share from 0 to 1; what is not empty shows at least an eighth of a cell."""
    share = min(max(share, 0.0), 1.0)
    eighths = round(share * cells * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest] if rest else "")
    return ((filled, tone), ("·" * (cells - len(filled)), line.RULE))


def status_counts(counts: Mapping[str, int], stalled: int, cells: int) -> Line:
    """`R 18 running  S 1 starting …`, those that are not there left out; without the words where they do not fit."""
    from console.core.marks import STALLED, group_mark

    order = (
        "running",
        "starting",
        "scheduling",
        "pending",
        "paused",
        "recovering",
        "pausing",
        "stopping",
        "failed",
        "completed",
        "stopped",
    )
    shown = [(group_mark(status), counts[status]) for status in order if counts.get(status)]
    if stalled:
        shown.append((STALLED, stalled))
    parts: list[Line] = [((f"{mark.letter} {count:,} ", mark.tone), (mark.word, line.DIM)) for mark, count in shown]
    worded = joined(parts, ("   ", line.TEXT))
    if line_width(worded) <= cells:
        return worded
    return joined([((f"{mark.letter} {count:,}", mark.tone),) for mark, count in shown], ("   ", line.TEXT))
