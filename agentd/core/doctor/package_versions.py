"""Versions of packages as dpkg orders them, and the oldest ones that are free of the holes this product guards against.

Distributions mend an old version and keep its number, so a number alone says nothing where a package is theirs.
"""

import re
from collections.abc import Mapping

Release = tuple[str, str]

RUNC_FLOOR = "1.1.12"
"""CVE-2024-21626: a container reaches the host's files through a descriptor that leaked."""
RUNC_BACKPORTS: Mapping[Release, str] = {
    ("debian", "11"): "1.0.0~rc93+ds1-5+deb11u3",
    ("debian", "12"): "1.1.5+ds1-1+deb12u1",
    ("ubuntu", "20.04"): "1.1.7-0ubuntu1~20.04.2",
    ("ubuntu", "22.04"): "1.1.7-0ubuntu1~22.04.2",
}
TOOLKIT_FLOOR = "1.17.8"
"""CVE-2024-0132 and CVE-2025-23266, 23267: an image takes over the host through the hook that gives it cards."""
ENGINE_FLOOR = "20.10"
"""The first whose API takes what our create request says."""


def compare(left: str, right: str) -> int:
    """-1, 0 or 1, as `dpkg --compare-versions`."""
    epoch_l, upstream_l, revision_l = _split(left)
    epoch_r, upstream_r, revision_r = _split(right)
    if epoch_l != epoch_r:
        return -1 if epoch_l < epoch_r else 1
    return _order(upstream_l, upstream_r) or _order(revision_l, revision_r)


def at_least(version: str, floor: str) -> bool:
    return compare(version, floor) >= 0


def upstream_of(said: str) -> str:
    """The number in what a program says of itself (`v1.1.12`, `1.1.5+ds1`, `runc version 1.2.3`), or nothing."""
    found = re.search(r"\d+(?:\.\d+)+", said)
    return found.group() if found else ""


def backport(package: str, release: Release, backports: Mapping[Release, str]) -> bool | None:
    """Whether a distribution's package has the mend; None where nothing is known of that release."""
    floor = backports.get(release)
    return None if floor is None else at_least(package, floor)


def _split(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon or not epoch.isdigit():
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return int(epoch), upstream if dash else rest, revision if dash else ""


def _order(left: str, right: str) -> int:
    """Runs of other characters and of digits in turn; `~` sorts before the end, letters before all else."""
    while left or right:
        left_text, left = _run(left, digits=False)
        right_text, right = _run(right, digits=False)
        for place in range(max(len(left_text), len(right_text))):
            weight_l, weight_r = _weight(left_text, place), _weight(right_text, place)
            if weight_l != weight_r:
                return -1 if weight_l < weight_r else 1
        left_number, left = _run(left, digits=True)
        right_number, right = _run(right, digits=True)
        if int(left_number or 0) != int(right_number or 0):
            return -1 if int(left_number or 0) < int(right_number or 0) else 1
    return 0


def _run(text: str, digits: bool) -> tuple[str, str]:
    end = 0
    while end < len(text) and (text[end] in "0123456789") == digits:
        end += 1
    return text[:end], text[end:]


def _weight(text: str, place: int) -> int:
    if place >= len(text):
        return 0
    letter = text[place]
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256
