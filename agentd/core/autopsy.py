"""What was last seen of each rank of an attempt that stands still: who fell silent first is often the cause, the others
wait for him."""

from collections.abc import Sequence
from typing import NamedTuple

from agentd.core.quiet import Quiet
from agentd.core.stall import RankSignals, span

_RANKS_SHOWN = 8


class Silence(NamedTuple):
    """seconds: since the newest sign of life of the rank; what: which one that was."""

    seconds: float
    what: str


def autopsy(ranks: Sequence[tuple[str, RankSignals]]) -> str:
    """ranks: (node, what is known of its rank). The one that has been silent longest is named first."""
    found = sorted(
        ((silence_of(signals), node, signals.rank) for node, signals in ranks),
        key=lambda item: (-item[0].seconds, item[2]),
    )
    said = [f"rank {rank} on {node} last {last.what} {span(last.seconds)} ago" for last, node, rank in found]
    shown = "; ".join(said[:_RANKS_SHOWN])
    if len(said) > _RANKS_SHOWN:
        shown += f"; and {len(said) - _RANKS_SHOWN} more ranks after them"
    return shown


def silence_of(signals: RankSignals) -> Silence:
    """Files are read and written by every step: they say little where a log or a card speaks too."""
    signs: list[tuple[Quiet | None, str]] = [
        (signals.log, "printed"),
        *((card, "used its cards") for card in signals.cards),
        (signals.files, "read or wrote"),
    ]
    seen = [Silence(quiet.seconds, what) for quiet, what in signs if quiet is not None]
    return min(seen, key=lambda item: item.seconds, default=Silence(signals.running_s, "started"))
