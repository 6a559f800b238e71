"""Advice on the checkpoints of a group as the API shows it: from its ledger, its restarts and the losses of nodes."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from agentd.http.checkpoint_view import keep_last_n
from schemas.rules.checkpoints.disk_forecast import disk_forecast
from schemas.rules.checkpoints.measures import Measures, measured
from schemas.rules.checkpoints.save_interval import Watched, interval_advice
from schemas.rules.rough_figures import rough
from schemas.states import TERMINAL
from schemas.task_types import part_of

Row = Mapping[str, Any]


def advice(group: Row, rows: Sequence[Row], nodes: Sequence[Row]) -> dict[str, Any] | None:
    """rows: of the ledger, oldest first. nodes: all that the mesh knows. None: it has no checkpoint_path."""
    if group["checkpoint_path"] is None:
        return None
    now_ms = time.time_ns() // 1_000_000
    measures = measured(rows)
    return {
        "disk": None if group["status"] in TERMINAL else _disk(group, measures),
        "interval": _interval(group, measures, nodes, now_ms),
    }


def _disk(group: Row, measures: Measures) -> dict[str, Any]:
    free_bytes = (group.get("saved") or {}).get("free_bytes")
    body = part_of(group["document"])
    # Only whole directories are ever removed, and TensorFlow writes loose files.
    keep = keep_last_n(group) if body.get("framework") != "tensorflow" else None
    forecast = disk_forecast(measures, keep, free_bytes)
    return {
        "bytes_each": measures.bytes_each,
        "every_s": measures.every_s,
        "free_bytes": free_bytes,
        "full_in_s": _rough(forecast.full_in_s),
        "fits": forecast.fits,
        "text": forecast.text,
    }


def _interval(group: Row, measures: Measures, nodes: Sequence[Row], now_ms: int) -> dict[str, Any]:
    n_nodes = part_of(group["document"]).get("n_nodes", 1)
    found = interval_advice(measures, _own(group, now_ms), _of_nodes(nodes, now_ms), n_nodes)
    return {
        "interval_s": _rough(found.interval_s),
        "at_least": found.at_least,
        "cost_s": measures.took_s,
        "mtbf_s": _rough(found.mtbf_s),
        "text": found.text,
    }


def _own(group: Row, now_ms: int) -> Watched:
    since_ms = group.get("runs_since_ms")
    running_ms = 0 if since_ms is None else max(0, now_ms - since_ms)
    return Watched(group["restarts"], (group.get("ran_ms", 0) + running_ms) / 1000)


def _of_nodes(nodes: Sequence[Row], now_ms: int) -> Watched:
    """Each since it joined, one that is lost until then."""
    seen_ms = sum(max(0, (node["lost_ms"] or now_ms) - node["joined_ms"]) for node in nodes)
    return Watched(sum(node["losses"] for node in nodes), seen_ms / 1000)


def _rough(seconds: float | None) -> float | None:
    return None if seconds is None else rough(seconds)
