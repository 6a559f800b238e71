"""How often a group should save: Young's interval, sqrt(2 * cost of a save * mean time between failures).

Saving more often costs more than the work that it saves at a failure; saving more seldom, the other way round. The
cost is flat near the best interval, so one within a factor of two is as good."""

from dataclasses import dataclass
from math import sqrt

from schemas.rules.checkpoints.measures import Measures
from schemas.rules.rough_figures import rough_time

# No failure in a time T: one in T/3 or more often would have shown itself with 95 %.
_RULE_OF_THREE = 3
_NEAR = 2.0
_TOO_SHORT = "nothing has run long enough to tell how often it fails"


@dataclass(frozen=True, slots=True)
class Watched:
    """failures: that were seen in `seconds` of running: of a group, or of all nodes together."""

    failures: int
    seconds: float


@dataclass(frozen=True, slots=True)
class IntervalAdvice:
    """Seconds, None where not known. at_least: no failure was seen, so the interval and the time between failures are
    lower bounds."""

    interval_s: float | None
    at_least: bool
    mtbf_s: float | None
    text: str


def best_interval_s(cost_s: float, mtbf_s: float) -> float:
    """Both above 0. Never above the time between failures: with a cost of more than half of it no interval is good."""
    return min(sqrt(2 * cost_s * mtbf_s), mtbf_s)


def interval_advice(measures: Measures, group: Watched, nodes: Watched, n_nodes: int) -> IntervalAdvice:
    """nodes: of the mesh, their times added up. n_nodes: of the group, each of which ends its attempt when lost."""
    mtbf_s, at_least, said = _between_failures(group, nodes, n_nodes)
    cost_s = measures.took_s
    if not cost_s or mtbf_s is None:
        missing = "how long a save takes was not measured" if not cost_s else _TOO_SHORT
        return IntervalAdvice(None, at_least, mtbf_s, f"no interval advice: {missing}")
    interval_s = best_interval_s(cost_s, mtbf_s)
    if mtbf_s < 2 * cost_s:
        if at_least:
            return IntervalAdvice(None, True, mtbf_s, f"no interval advice: {_TOO_SHORT}, {said}")
        text = f"no interval is good: a save takes {rough_time(cost_s)}, {said}; make it cheaper or find what fails"
        return IntervalAdvice(interval_s, False, mtbf_s, text)
    advice = f"{'save at least' if at_least else 'save about every'} {rough_time(interval_s)}"
    advice += " apart" if at_least else ""
    text = f"{advice}{_now(measures.every_s, interval_s, at_least)}: a save takes {rough_time(cost_s)}, {said}"
    return IntervalAdvice(interval_s, at_least, mtbf_s, text)


def _between_failures(group: Watched, nodes: Watched, n_nodes: int) -> tuple[float | None, bool, str]:
    """By whichever saw more failures; where both saw as many, by the one that says sooner, and of two that saw none by
    the longer look."""
    own = f"{_counted(group.failures, 'restart')} in {rough_time(group.seconds)} of its running"
    lost = f"{_counted(nodes.failures, 'node loss', 'node losses')} in {rough_time(nodes.seconds)} of node time"
    looks = [
        (look.failures, seconds, said)
        for look, seconds, said in ((group, group.seconds, own), (nodes, nodes.seconds / max(1, n_nodes), lost))
        if seconds > 0
    ]
    if not looks:
        return None, False, ""
    most = max(failures for failures, _, _ in looks)
    told = [look for look in looks if look[0] == most]
    failures, seconds, said = min(told, key=_seconds) if most else max(told, key=_seconds)
    mtbf_s = seconds / (failures or _RULE_OF_THREE)
    apart = f"{'' if failures else 'at least '}{rough_time(mtbf_s)} apart"
    who = f"its {n_nodes:,} nodes fail" if n_nodes > 1 else "its node fails"
    return mtbf_s, not failures, f"{who} {apart} ({said})"


def _seconds(look: tuple[int, float, str]) -> float:
    return look[1]


def _counted(count: int, one: str, more: str = "") -> str:
    return f"no {one}" if count == 0 else f"1 {one}" if count == 1 else f"{count:,} {more or one + 's'}"


def _now(every_s: float | None, interval_s: float, at_least: bool) -> str:
    if every_s is None:
        return ""
    if interval_s / _NEAR <= every_s <= interval_s * _NEAR:
        return f" (every {rough_time(every_s)} as now is near it)"
    if at_least and every_s > interval_s:
        return f" (every {rough_time(every_s)} now)"
    return f" (every {rough_time(every_s)} now, which is {'often' if every_s < interval_s else 'seldom'})"
