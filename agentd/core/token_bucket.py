"""How often somebody may come: a burst, and then no faster than a steady rate."""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float


class TokenBuckets:
    """One bucket a name. At most `most` names are remembered; the one that was silent longest is forgotten, which
    fills its bucket: whoever makes up names gains a burst for each, so names are to be ones that cost something."""

    def __init__(self, per_s: float, burst: float, most: int = 4096) -> None:
        self._per_s, self._burst, self._most = per_s, burst, most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str, now_s: float) -> float:
        """0 where this one may come, else the seconds until the next may."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(self._burst, now_s)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(name)
        bucket.tokens = min(bucket.tokens + max(now_s - bucket.at_s, 0.0) * self._per_s, self._burst)
        bucket.at_s = now_s
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._per_s
        bucket.tokens -= 1
        return 0.0
