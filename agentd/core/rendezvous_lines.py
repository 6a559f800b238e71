"""Known lines in which a program says which number of which world it believes to be, whatever its launcher told it."""

import re

# Lightning, on every process, before it joins: `num_nodes=1` in the script makes each node a world of its own.
_LIGHTNING = re.compile(r"Initializing distributed: GLOBAL_RANK: (\d{1,7}), MEMBER: (\d{1,7})/(\d{1,7})\b")


def world_said(line: str) -> tuple[int, int] | None:
    """(number, world); None of any other line."""
    if "GLOBAL_RANK" not in line or (found := _LIGHTNING.search(line)) is None:
        return None
    number, member, world = map(int, found.groups())
    return (number, world) if member == number + 1 <= world else None
