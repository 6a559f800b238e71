"""What the nodes last said of running groups and of cards, out of an answer of `/telemetry`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from console.core.format import coarse
from console.core.group_list import QUIET_MS, Progress
from console.core.rank_table import RankNow
from console.core.sanitize import sanitize

Value = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Telemetry:
    """groups, ranks: by group id, of its newest attempt. cards: uuid -> percent in use, None where it was not told."""

    groups: dict[str, Progress] = field(default_factory=dict)
    ranks: dict[str, dict[int, RankNow]] = field(default_factory=dict)
    cards: dict[str, float | None] = field(default_factory=dict)


def telemetry_of(value: object) -> Telemetry:
    """value: as it came; the one text in it that is shown is made safe here."""
    said = Telemetry()
    if not isinstance(value, Mapping):
        return said
    for group in _listed(value.get("groups")):
        group_id = str(group.get("group_id"))
        said.groups[group_id] = _progress(group)
        said.ranks[group_id] = {
            rank: _rank(item) for item in _listed(group.get("ranks")) if isinstance(rank := item.get("rank"), int)
        }
    for node in _listed(value.get("nodes")):
        for card in _listed(node.get("cards")):
            said.cards[str(card.get("uuid"))] = _number(card.get("util"))
    return said


def _progress(group: Value) -> Progress:
    wall = _number(group.get("wall"))
    said = sanitize(str(group.get("stall_text") or ""))
    stalled = group.get("stall") == "stalled"
    return Progress(
        step=_number(group.get("step")),
        loss=_value(group.get("loss")),
        at_ms=int(wall * 1000) if wall is not None and abs(wall) < 1e11 else None,
        stalled=(said or "no step for a while") if stalled else "",
        util=_number(group.get("gpu_util")),
        quiet="" if stalled else _quiet(_number(group.get("age_s")), said),
    )


def _quiet(age_s: float | None, said: str) -> str:
    """said: why the leader calls it neither stalled nor moving by its steps."""
    if age_s is None or age_s * 1000 <= QUIET_MS:
        return ""
    since = f"no step for {coarse(int(age_s * 1000))}"
    return said if said.startswith("no step") else f"{since}; {said}" if said else since


def _rank(item: Value) -> RankNow:
    cards = _listed(item.get("cards"))
    utils = [util for card in cards if (util := _number(card.get("util"))) is not None]
    used = [used for card in cards if (used := _number(card.get("memory_used_mb"))) is not None]
    return RankNow(
        util=sum(utils) / len(utils) if utils else None,
        memory_mb=max(used) if used else None,
        silent_s=_number(item.get("log_silent_s")),
    )


def _listed(value: object) -> list[Value]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _value(value: object) -> float | None:
    """NaN and infinities come as text, and are shown as what they are."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return _number(value)
