"""Measured round trips and the wait for an ack that follows from them (Jacobson's estimator, as TCP's)."""

from __future__ import annotations

from mesh.core.swim.profile import Profile

MS = 1_000_000
_Estimate = tuple[int, int]  # smoothed round trip, smoothed deviation; ns


def _next(held: _Estimate | None, sample: int) -> _Estimate:
    if held is None:
        return sample, sample // 2
    mean, deviation = held
    return mean + (sample - mean) // 8, deviation + (abs(sample - mean) - deviation) // 4


class RoundTrips:
    """A member that was not measured yet gets the estimate over all: a large mesh probes each pair rarely."""

    def __init__(self, profile: Profile) -> None:
        self._min, self._max = profile.probe_timeout_min_ms * MS, profile.probe_timeout_max_ms * MS
        self._all: _Estimate | None = None
        self._by_node: dict[str, _Estimate] = {}

    def measured(self, node: str, sample_ns: int) -> None:
        self._all = _next(self._all, sample_ns)
        self._by_node[node] = _next(self._by_node.get(node), sample_ns)

    def forget(self, node: str) -> None:
        self._by_node.pop(node, None)

    def timeout_ns(self, node: str) -> int:
        estimate = self._by_node.get(node, self._all)
        if estimate is None:
            return self._max
        return max(self._min, min(self._max, estimate[0] + 4 * estimate[1]))
