"""The nodes during one pass: cards shrink as groups are placed, and nodes are reserved as groups are held."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

from mesh.core.sched.view import Card, Key, NodeView, Waiting
from mesh.core.state.penalty import decayed
from schemas.limits import PENALTY_FRESH_MS, PENALTY_UNIT, PORT_MAX, PORT_MIN

# A node that failed a claim rests for this long per failure, up to PENALTY_FRESH_MS: without it a group that fits
# nowhere else would be bound and rolled back as fast as the log goes.
REST_MS = 2000
UNTOLD_RUN_MS = 3_600_000
"""A group that did not say how long it runs is kept off a node for the last hour before a maintenance window. For
longer would empty nodes for days, and it can be moved; for less it would start to be moved at once."""
START_MS = 120_000
"""A deadline counts from when all ranks run; claims and starts have this long before that."""


@dataclass(slots=True)
class Seat:
    """One node in this pass. ready: it could start something; why not is `lost`, `engine_down` or `cordoned`. avoid: 0
    for a node without a recent fault; resting: not to be used at all yet; closes_ms: as of the node. freed: bit n
    where n cards may have come free at some moment. kept_cards, kept_ports: what ranks of held groups need here;
    missed: whether so many cards would be missed by one of them, where that was asked."""

    node_id: str
    ready: bool
    lost: bool
    engine_down: bool
    cordoned: bool
    containers: bool
    resting: bool
    avoid: int
    total: dict[str, int]
    free: list[Card]
    free_by_type: dict[str, int]
    cleaning: int
    ports: set[int]
    endless_by_type: dict[str, int]
    endless_ports: frozenset[int]
    tasks: int
    closes_ms: int | None
    freed: int
    keeper: Waiting | None = None
    kept_cards: set[int] = field(default_factory=set)
    kept_ports: set[int] = field(default_factory=set)
    missed: dict[int, bool] = field(default_factory=dict)

    def could_take(self, types: tuple[str, ...], key: Key) -> bool:
        """With nothing else on it. types: one option of the key's."""
        return self.containers == key[2] and self.all_of(types) >= key[1]

    def could_take_by_itself(self, types: tuple[str, ...], key: Key) -> bool:
        """Once everything there has ended that ends by itself."""
        left = self.all_of(types) - _count(self.endless_by_type, types)
        return self.could_take(types, key) and left >= key[1] and self.endless_ports.isdisjoint(key[3])

    def closed_to(self, key: Key) -> bool:
        """It would run into this node's maintenance."""
        return self.closes_ms is not None and self.closes_ms <= key[4]

    def keeps_out(self, key: Key) -> bool:
        """Whether a rank of `key` could make a held group wait longer for this node: if it never went away, would there
        be a moment, as the holders end in any order, at which the held one fits without it and does not fit beside it?
        Cards of several types are not counted so: they are kept."""
        if self.keeper is None:
            return False
        count = key[1]
        missed = self.missed.get(count)
        if missed is None:
            several = count > 0 and len(self.total) > 1
            missed = several or any(self._would_miss(needed, count) for needed in self.kept_cards)
            self.missed[count] = missed
        return missed or not self.kept_ports.isdisjoint(key[3])

    def _would_miss(self, needed: int, count: int) -> bool:
        first, end = max(0, needed - len(self.free)), needed - len(self.free) + count
        return end > first and bool(self.freed >> first & ((1 << (end - first)) - 1))

    def keep(self, key: Key, group: Waiting) -> None:
        self.keeper = self.keeper or group
        if key[1] not in self.kept_cards:
            self.kept_cards.add(key[1])
            self.missed.clear()
        self.kept_ports.update(key[3])

    def all_of(self, types: tuple[str, ...]) -> int:
        return _count(self.total, types)

    def free_of(self, types: tuple[str, ...]) -> int:
        return _count(self.free_by_type, types)

    def take(self, types: tuple[str, ...], count: int) -> list[Card]:
        taken = [card for card in self.free if not types or card.type in types][:count]
        for card in taken:
            self.free.remove(card)
            self.free_by_type[card.type] -= 1
        if taken:
            self.freed |= self.freed << len(taken)
            self.missed.clear()
        return taken


def seat_of(node: NodeView, now_ms: int) -> Seat:
    since_ms = max(0, now_ms - node.penalty_ms)
    score = decayed(node.penalty_score, since_ms)
    rest_ms = min(PENALTY_FRESH_MS, REST_MS * node.penalty_score // PENALTY_UNIT)
    return Seat(
        node_id=node.node_id,
        ready=node.ready and not node.engine_down and not node.cordoned,
        lost=not node.ready,
        engine_down=node.engine_down,
        cordoned=node.cordoned,
        containers=node.containers,
        resting=node.penalty_score > 0 and since_ms < rest_ms,
        avoid=score * 2 // PENALTY_UNIT,
        total=_by_type(node.cards),
        free=list(node.free),
        free_by_type=_by_type(node.free),
        cleaning=node.cleaning,
        ports=set(node.ports),
        endless_by_type=_by_type(node.endless),
        endless_ports=node.endless_ports,
        tasks=node.tasks,
        closes_ms=node.closes_ms,
        freed=_sums(node),
    )


def _sums(node: NodeView) -> int:
    """Who holds them is not known of some cards: each of those may come free alone."""
    sums = (1 << (len(node.cards) - len(node.free) - sum(node.holds) + 1)) - 1
    for held in node.holds:
        sums |= sums << held
    return sums


@dataclass(slots=True)
class Pool:
    seats: list[Seat]
    now_ms: int
    _closings: list[int] = field(init=False)
    _kinds: list[str] = field(init=False)
    _reserved: set[Key] = field(default_factory=set)
    _capacity: dict[Key, tuple[int, int]] = field(default_factory=dict)
    _by_itself: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._closings = sorted({seat.closes_ms for seat in self.seats if seat.closes_ms is not None})
        self._kinds = sorted({kind for seat in self.seats for kind in seat.total})

    def key_of(self, group: Waiting) -> Key:
        """Types the mesh does not have make no difference: without them there are few different requests, however long
        the queue."""
        known = tuple(kind for kind in group.gpu_types if kind in self._kinds)
        types = known if known or not group.gpu_types else ("",)
        runs_ms = UNTOLD_RUN_MS if group.runs_ms is None else START_MS + group.runs_ms
        # Groups of any length between two windows are alike.
        met = bisect_left(self._closings, self.now_ms + runs_ms)
        return (types, group.per_node_gpu, group.in_container, group.ports, self._closings[met - 1] if met else 0)

    def options(self, key: Key) -> Iterator[tuple[str, ...]]:
        """The card types to try for a whole gang, best first. One gang gets one type, unless it named none and no
        single type suffices."""
        types = key[0]
        for kind in types or self._kinds:
            yield (kind,)
        if not types:
            yield ()

    def capacity(self, key: Key) -> tuple[int, int]:
        """How many nodes could ever take one rank, and how many of them are ready: the largest gang of one option."""
        known = self._capacity.get(key)
        if known is None:
            fits = [[seat for seat in self.seats if seat.could_take(option, key)] for option in self.options(key)]
            known = self._capacity[key] = (
                max((len(seats) for seats in fits), default=0),
                max((sum(seat.ready and not seat.closed_to(key) for seat in seats) for seats in fits), default=0),
            )
        return known

    def by_itself(self, key: Key) -> int:
        """How many ready nodes could take one rank without anybody stopping anything."""
        known = self._by_itself.get(key)
        if known is None:
            known = self._by_itself[key] = max(
                (
                    sum(
                        seat.ready and not seat.closed_to(key) and seat.could_take_by_itself(option, key)
                        for seat in self.seats
                    )
                    for option in self.options(key)
                ),
                default=0,
            )
        return known

    def place(self, group: Waiting) -> list[tuple[Seat, list[Card]]] | None:
        """Seats and cards by rank, taken; None when no option has room for all ranks."""
        key = self.key_of(group)
        if key in self._reserved:
            return None
        for option in self.options(key):
            able = [seat for seat in self.seats if self._usable(seat, option, key)]
            if len(able) >= group.n_nodes:
                # Healthy nodes first, then the fullest that still fit, so that large holes stay whole. Who did not say
                # for how long he runs is better off where no maintenance is announced.
                untold = group.runs_ms is None
                able.sort(
                    key=lambda seat: (
                        seat.node_id == group.avoid,
                        seat.avoid,
                        untold and seat.closes_ms is not None,
                        *_fullness(seat, option, key),
                    )
                )
                chosen = sorted(able[: group.n_nodes], key=lambda seat: seat.node_id)
                for seat in chosen:
                    seat.tasks += 1
                    seat.ports.update(group.ports)
                return [(seat, seat.take(option, group.per_node_gpu)) for seat in chosen]
        return None

    def _usable(self, seat: Seat, option: tuple[str, ...], key: Key) -> bool:
        open_to = seat.ready and not seat.resting and seat.containers == key[2]
        if not open_to or seat.closed_to(key) or seat.keeps_out(key):
            return False
        return seat.free_of(option) >= key[1] and seat.ports.isdisjoint(key[3])

    def is_reserved(self, key: Key) -> bool:
        return key in self._reserved

    def reserve(self, group: Waiting) -> None:
        """Every node that could take a rank of a held group is kept for it: without deadlines nothing proves that a
        later group would be gone in time, so it gets only what would never be missed. Not those that it cannot use
        before their maintenance is over."""
        key = self.key_of(group)
        if key in self._reserved:
            return
        self._reserved.add(key)
        for seat in self.seats:
            known = key[1] in seat.kept_cards and not key[3]
            if not known and seat.could_take(key[0], key) and not seat.closed_to(key):
                seat.keep(key, group)


def _fullness(seat: Seat, option: tuple[str, ...], key: Key) -> tuple[int, str]:
    """What takes no card leaves no hole, and is spread instead."""
    return (seat.free_of(option) if key[1] else seat.tasks, seat.node_id)


def free_port(taken: set[int], group_id: str, attempt: int) -> int:
    """Another port at each attempt: the last one may be taken by a process the mesh does not know. By the group's id,
    which no other mesh of this machine has: torch listens on every address, so two meshes there share the ports."""
    size = PORT_MAX - PORT_MIN + 1
    first = (crc32(group_id.encode()) + attempt) % size
    ports = (PORT_MIN + (first + step) % size for step in range(size))
    return next((port for port in ports if port not in taken), PORT_MIN + first)


def _by_type(cards: tuple[Card, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for card in cards:
        counts[card.type] = counts.get(card.type, 0) + 1
    return counts


def _count(by_type: dict[str, int], types: tuple[str, ...]) -> int:
    if not types:
        return sum(by_type.values())
    if len(types) == 1:  # nearly always, and a pass asks very often
        return by_type.get(types[0], 0)
    return sum(by_type.get(kind, 0) for kind in types)
