"""Whether the ranks of an attempt that runs have found each other: one world, or what there is instead.

Launchers wait for a missing node for a quarter of an hour and print nothing, and a world that split in two trains on
and ends with 0. So it is seen from outside: who has rank 0's port open, who is connected to it, and which number and
world the launchers gave their processes. It is an observation: nothing is stopped by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentd.core.stall import span

FORMING, FORMED, MISSING, SILENT, SPLIT, UNJUDGED = "forming", "formed", "missing", "silent", "split", "unjudged"
TOLD = (FORMED, MISSING, SILENT, SPLIT)


@dataclass(frozen=True, slots=True)
class RendezvousLimits:
    """after_s: above what loading a framework takes, far below the 900 s of torchrun."""

    after_s: float = 120.0

    @property
    def settled_s(self) -> float:
        """For how long a connection of which no launcher says whose it is must have stood: launchers connect first,
        and start their processes a moment later."""
        return min(10.0, self.after_s / 4)


@dataclass(frozen=True, slots=True)
class Processes:
    """What a launcher told the processes of one node: the lowest RANK, and of how many in all. inside: how many have
    connected to rank 0's port; outside: the lowest RANK that has not. gathered: by a launcher that starts them only
    once all nodes have come."""

    lowest: int
    world: int
    inside: int = 0
    outside: int | None = None
    gathered: bool = False


@dataclass(frozen=True, slots=True)
class RendezvousNow:
    """Of one node's task. place: rank 0's address and port, as it was told. listens: on that port; connected: to it,
    now or before; None is what could not be seen. held_s: since the first of the two was seen."""

    place: str
    watched_s: float
    listens: bool | None
    connected: bool | None
    held_s: float = 0.0
    processes: Processes | None = None


@dataclass(frozen=True, slots=True)
class RankView:
    rank: int
    node: str
    running: bool
    running_s: float
    stepped: bool
    seen: RendezvousNow | None
    ended: int = 0
    """How many ranks of the attempt are over."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """what: how it is, which changes only when something does; text: with since when. late_s: for how long it has been
    past the limit."""

    state: str
    what: str
    since: str = ""
    late_s: float = 0.0

    @property
    def text(self) -> str:
        return self.what + self.since


def judge_rendezvous(ranks: Sequence[RankView], nodes: int, where: str, limits: RendezvousLimits) -> Meeting:
    """ranks: of one attempt, in order. where: rank 0's address and port."""
    if any(not item.running for item in ranks):
        return Meeting(FORMING, "not every rank is running")
    if absent := [rank for rank in range(nodes) if rank not in {item.rank for item in ranks}]:
        over = len(absent) <= max((item.ended for item in ranks), default=0)
        what = f"rank {_listed(absent)} has ended" if over else f"nothing is heard of rank {absent[0]}"
        return Meeting(UNJUDGED, f"cannot judge: {what}")
    seen = {item.rank: item.seen for item in ranks if item.seen is not None}
    if len(seen) < len(ranks):
        return Meeting(UNJUDGED, "cannot judge: the connections of a rank are not seen")
    worlds = {rank: now.processes for rank, now in seen.items() if now.processes is not None}
    divided = _divided(worlds, nodes)
    outside = [item for item in ranks if not _is_in(item.rank, seen[item.rank], limits)]
    since_s = min(item.running_s for item in ranks)
    if not divided and not outside:
        return Meeting(FORMED, f"one world of {nodes} nodes", _since(since_s))
    if not divided and len(worlds) == nodes and all(said.gathered and not said.inside for said in worlds.values()):
        # Not every script needs the others at once, and none of these waits for one.
        return Meeting(FORMING, "the launchers have gathered all nodes, and no process has joined yet")
    # An agent that has just begun to look has not seen what came before.
    waited_s = min(since_s, *(now.watched_s for now in seen.values()))
    if waited_s < limits.after_s:
        if since_s >= limits.after_s:
            return Meeting(UNJUDGED, f"cannot judge: watched for {span(waited_s)} only")
        return Meeting(FORMING, f"no world yet, {span(since_s)} after the last rank started")
    state, text = divided or _what_is_wrong(ranks, outside, seen, where)
    late_s = waited_s - limits.after_s
    if state == UNJUDGED:
        return Meeting(UNJUDGED, text)
    return Meeting(state, text, _since(since_s), late_s)


def _since(seconds: float) -> str:
    return f", {span(seconds)} after all ranks were running"


def _is_in(rank: int, now: RendezvousNow, limits: RendezvousLimits) -> bool:
    if now.processes is not None:
        return now.processes.outside is None
    return bool(now.listens if rank == 0 else now.connected) and now.held_s >= limits.settled_s


def _divided(worlds: Mapping[int, Processes], nodes: int) -> tuple[str, str] | None:
    """By what the launchers said: these cannot be parts of one world."""
    if alone := [rank for rank, said in worlds.items() if said.world < nodes]:
        size = worlds[alone[0]].world
        return SPLIT, (
            f"split world: the processes of rank {_listed(alone)} were started as a world of {size}, and the group has "
            f"{nodes} nodes"
        )
    firsts: dict[int, int] = {}
    for rank, said in worlds.items():
        if (other := firsts.setdefault(said.lowest, rank)) != rank:
            return SPLIT, f"split world: ranks {other} and {rank} both run RANK {said.lowest} of {said.world}"
    sizes = {said.world: rank for rank, said in sorted(worlds.items(), reverse=True)}
    if len(sizes) > 1:
        (one, first), (two, second) = sorted(sizes.items(), key=lambda pair: pair[1])[:2]
        return SPLIT, f"split world: rank {first} runs in a world of {one}, rank {second} in one of {two}"
    return None


def _what_is_wrong(
    ranks: Sequence[RankView], outside: Sequence[RankView], seen: Mapping[int, RendezvousNow], where: str
) -> tuple[str, str]:
    listeners = [rank for rank, now in seen.items() if now.listens]
    stepped = next((item.rank for item in ranks if item.stepped), None)
    if len(listeners) > 1:
        return SPLIT, f"split world: ranks {_listed(listeners)} each wait for the others at a port of their own"
    if not listeners and seen[0].listens is None:
        return UNJUDGED, "cannot judge: the open ports of rank 0 are not seen"
    if 0 not in listeners and stepped is not None:
        return SPLIT, f"split world: rank {stepped} trains, and rank 0 has never opened {where}"
    if 0 not in listeners:
        return SILENT, f"silent world: rank 0 ({ranks[0].node}) has not opened {where}, where the others look for it"
    if any(item.rank and seen[item.rank].connected is None for item in outside):
        return UNJUDGED, "cannot judge: the connections of a rank are not seen"
    return _missing(outside, seen, where, stepped)


def _missing(
    outside: Sequence[RankView], seen: Mapping[int, RendezvousNow], where: str, stepped: int | None
) -> tuple[str, str]:
    never = [item for item in outside if item.rank and not seen[item.rank].connected]
    if never and stepped is not None:
        return SPLIT, f"split world: rank {stepped} trains without {_named(never)}, never connected to {where}"
    if never:
        return MISSING, f"missing: {_named(never)} never connected to {where}"
    first = outside[0]
    said = seen[first.rank].processes
    which = f"RANK {said.outside} on rank {first.rank}" if said is not None else f"rank {first.rank}"
    return MISSING, f"missing: {which} ({first.node}) has not joined the world at {where}"


def _named(items: Sequence[RankView]) -> str:
    named = ", ".join(f"rank {item.rank} ({item.node})" for item in items[:4])
    return named if len(items) <= 4 else f"{named} and {len(items) - 4} more"


def _listed(numbers: Sequence[int]) -> str:
    head = ", ".join(map(str, numbers[:4]))
    return head if len(numbers) <= 4 else f"{head} and {len(numbers) - 4} more"
