"""What may be said in a mesh whose hosts run releases next to each other.

A command, or a field of one, that came with a later release than the first has a place here: the cluster version from
which on it may be used. That rises by command (`RaiseVersion`) once every voter supports it. Before, such a command is
refused where it is proposed, and by every reducer: an older release would refuse it as unknown, and two voters must
never make different states of one entry."""

from collections.abc import Mapping
from typing import Any

from schemas.errors import Conflict, Problem

SUPPORTED = 1
"""The newest cluster version that this release knows. It grows with each release that adds to SINCE."""
FIRST = 1
SINCE: Mapping[str, int] = {}
"""`Command` or `Command.field` -> cluster version. What is not here is of version 1."""
VERSION_MAX = 1_000_000


def version_needed(command: Mapping[str, Any], since: Mapping[str, int] = SINCE) -> int:
    """command: of a checked shape. Its own `needs` counts too: a later release may give an old command a new meaning,
    which an older one cannot see in it."""
    name = command["t"]
    needed = max(command.get("needs", FIRST), since.get(name, FIRST))
    if since:
        needed = max([needed, *(since.get(f"{name}.{field}", FIRST) for field in command)])
    return int(needed)


def version_refusal(command: Mapping[str, Any], cluster_version: int) -> Problem | None:
    needed = version_needed(command)
    if needed <= cluster_version:
        return None
    return Conflict(
        "version_too_low",
        f"{command['t']} as it is meant here needs cluster version {needed}, and this mesh is at {cluster_version}; it "
        f"was not proposed.",
        "Upgrade every voter's host, then: heteroflow mesh raise-version.",
    ).problem
