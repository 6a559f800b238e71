"""Whether two pickles say the same of all places, without reading the second one.

The saves of one job differ in a few texts alone: the path that holds the step, an id of the save. To read one takes
milliseconds to seconds, to compare two of them a thousandth of it.
"""

from array import array
from bisect import bisect_right
from collections.abc import Set
from dataclasses import dataclass

_DIFFERING_MAX = 16


@dataclass(frozen=True, slots=True)
class ReadPickle:
    """data: a pickle that was read; texts: where in it each text begins and ends, ascending; telling: every text in it
    that changes what was read."""

    data: bytes
    texts: "array[int]"
    telling: Set[bytes]

    def says_the_same_as(self, data: bytes) -> bool:
        """Whether `data` differs from the one that was read in texts of the same length alone, and in none that is
        telling: then each opcode is the same, and so is all that was read. False may be wrong, True never is."""
        if len(data) != len(self.data):
            return False
        at = 0
        for _ in range(_DIFFERING_MAX):
            at = _first_difference(self.data, data, at)
            if at == len(data):
                return True
            bounds = bisect_right(self.texts, at)
            if bounds % 2 == 0:
                return False
            start, end = self.texts[bounds - 1], self.texts[bounds]
            if not {self.data[start:end], data[start:end]}.isdisjoint(self.telling) or not _is_text(data[start:end]):
                return False
            at = end
        return False


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _first_difference(one: bytes, other: bytes, start: int) -> int:
    """Both have the same length, which is returned where nothing differs from `start` on."""
    low, high = start, len(one)
    if one[low:] == other[low:]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
