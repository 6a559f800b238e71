"""Whether an attempt that runs has stopped moving.

Called stalled only where every signal of every rank agrees for the whole limit: no new step by the step's own time,
every card idle, logs silent, nothing read or written. One that contradicts means it moves; one that is missing means
that nobody can say. Before the first step of an attempt the limit is longer and a busy processor contradicts too:
compiling, loading and downloading look like nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentd.core.quiet import Quiet

IDLE_CARD_PERCENT = 5.0
START_FACTOR = 10


@dataclass(frozen=True, slots=True)
class StallLimits:
    """after_s: longer than the two minutes that a healthy writer keeps its points to itself."""

    after_s: float = 180.0

    @property
    def before_first_step_s(self) -> float:
        return self.after_s * START_FACTOR


@dataclass(frozen=True, slots=True)
class RankSignals:
    """step: since the newest step of this attempt, None before the first (and on ranks that do not watch it). cards,
    files, processor: None where it cannot be seen. ended: how many ranks of the attempt are over, as its host knows:
    of those nobody tells signals any more."""

    rank: int
    running: bool
    running_s: float
    log: Quiet | None
    cards: Sequence[Quiet | None]
    files: Quiet | None
    processor: Quiet | None
    step: Quiet | None = None
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """quiet_s: for how long all signals have agreed; stalled_s: for how long beyond the limit."""

    state: Literal["moving", "stalled", "unjudged"]
    text: str
    stalled_s: float = 0.0
    quiet_s: float = 0.0


class _Signal(NamedTuple):
    quiet: Quiet | None
    moves: str
    unseen: str


def judge(ranks: Sequence[RankSignals], world: int, limits: StallLimits) -> Verdict:
    """world: how many ranks the attempt has."""
    by_rank = {item.rank: item for item in ranks}
    if waiting := sorted(item.rank for item in by_rank.values() if not item.running):
        return Verdict("moving", f"rank {waiting[0]} is not running")
    absent = [rank for rank in range(world) if rank not in by_rank]
    # Which of them are over is not told, but when all are.
    if len(absent) > max((item.ended for item in by_rank.values()), default=0):
        return Verdict("unjudged", f"cannot judge: nothing is heard of rank {absent[0]}")
    stepped = next((item.step for item in by_rank.values() if item.step is not None), None)
    limit_s = limits.after_s if stepped is not None else limits.before_first_step_s
    since_step_s = stepped.seconds if stepped is not None else max(item.running_s for item in by_rank.values())
    if since_step_s < limit_s:
        return Verdict("moving", f"last step {span(since_step_s)} ago" if stepped else "no step yet")
    unseen = ""
    shortest_s = since_step_s
    for signal in _signals(by_rank.values(), stepped is None):
        if signal.quiet is None:
            unseen = unseen or signal.unseen
        elif signal.quiet.seconds >= limit_s:
            shortest_s = min(shortest_s, signal.quiet.seconds)
        elif signal.quiet.exact:
            return Verdict("moving", signal.moves)
        else:
            unseen = unseen or f"watched for {span(signal.quiet.seconds)} only"
    said = f"no step for {span(since_step_s)}" if stepped is not None else f"no step in {span(since_step_s)}"
    if unseen:
        return Verdict("unjudged", f"{said}, but cannot judge: {unseen}")
    idle = f"cards below {IDLE_CARD_PERCENT:g} %, " if any(item.cards for item in by_rank.values()) else ""
    every = f"every rank but rank {_listed(absent)}, which has ended," if absent else "every rank"
    text = f"{said}; {idle}logs and files silent on {every} for {span(limit_s)} or longer"
    return Verdict("stalled", text, shortest_s - limit_s, shortest_s)


def _signals(ranks: Iterable[RankSignals], before_first: bool) -> Iterator[_Signal]:
    for item in ranks:
        at = f"rank {item.rank}"
        yield _Signal(item.log, f"{at} prints", f"the log of {at} is not seen")
        for card in item.cards:
            yield _Signal(card, f"a card of {at} is busy", f"GPU utilisation of {at} is not available")
        if item.files is not None:
            yield _Signal(item.files, f"{at} reads or writes", "")
        if before_first:
            yield _Signal(item.processor, f"{at} computes", f"the processes of {at} are not seen")


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:4]))
    return shown if len(ranks) <= 4 else f"{shown} and {len(ranks) - 4} more"


def span(seconds: float) -> str:
    whole = int(max(seconds, 0.0))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
