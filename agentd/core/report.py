"""What a task says of itself through heteroflow_report: one JSON object a line, from a program that nobody trusts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

# Written whole by the reporter: longer lines are not its own.
LINE_MAX = 4096
# 64 groups of one card on one host still fit into what the host tells the leader.
METRICS_MAX, NAME_MAX, PHASE_MAX = 12, 32, 32
_STEP_MAX = 2**53
_RANK_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Report:
    """The newest of each. rank: of the process that said it. stepped_s: when the step last changed, by the clock it was
    read with."""

    rank: int
    step: int | None = None
    loss: float | None = None
    lr: float | None = None
    epoch: float | None = None
    phase: str = ""
    metrics: tuple[tuple[str, float], ...] = ()
    stepped_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "loss": self.loss,
            "lr": self.lr,
            "epoch": self.epoch,
            "phase": self.phase or None,
            "metrics": dict(self.metrics),
        }


def report_of(line: bytes) -> dict[str, Any] | None:
    """The parts that make sense; None for a line that is no report at all. Total: no bytes raise."""
    if len(line) > LINE_MAX:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not _whole(value.get("rank"), _RANK_MAX):
        return None
    told: dict[str, Any] = {"rank": value["rank"]}
    # JSON does not tell 120.0 from 120, and neither does whoever counts in a tensor.
    step = value.get("step")
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if _whole(step, _STEP_MAX):
        told["step"] = step
    for name in ("loss", "lr", "epoch"):
        if (number := _number(value.get(name))) is not None:
            told[name] = number
    phase = value.get("phase")
    if isinstance(phase, str) and phase.isprintable() and len(phase) <= PHASE_MAX:
        told["phase"] = phase
    metrics = value.get("metrics")
    if isinstance(metrics, Mapping):
        told["metrics"] = tuple(_metrics(metrics))[:METRICS_MAX]
    return told


def taken(before: Report | None, told: Mapping[str, Any], now_s: float) -> Report:
    """The lowest rank that ever spoke is the one that is heard."""
    if before is None or told["rank"] < before.rank:
        before = Report(told["rank"], stepped_s=now_s)
    elif told["rank"] > before.rank:
        return before
    stepped = "step" in told and told["step"] != before.step
    return replace(before, **dict(told), stepped_s=now_s if stepped else before.stepped_s)


def _metrics(metrics: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [
        (name, number)
        for name, value in metrics.items()
        if 0 < len(name) <= NAME_MAX and name.isprintable() and (number := _number(value)) is not None
    ]


def _whole(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _number(value: object) -> float | None:
    """NaN and infinity are numbers here: that a loss has become one is what people want to know."""
    if isinstance(value, float):
        return value
    if type(value) is int and isfinite(number := float(value) if abs(value) < 2**1000 else float("inf")):
        return number
    return None
