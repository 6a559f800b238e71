"""How a mesh is founded: N named hosts get one roster, once. Pure; `agentd/join.py` keeps it durable.

Seats are given in order of arrival and frozen together. Before the freeze nothing is promised, so a candidate that
stops asking is forgotten; after it the roster never changes, and whoever asks again gets the same answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

CANDIDATE_SILENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Candidate:
    node_id: str
    uid: str
    api_addr: str
    voter_addr: str


@dataclass(frozen=True, slots=True)
class Seat:
    node: str
    uid: str
    raft_id: int
    voter_addr: str
    api_addr: str


@dataclass(frozen=True, slots=True)
class Founding:
    """The frozen facts of a mesh."""

    cluster_id: str
    epoch: int
    profile: str
    seats: tuple[Seat, ...]

    def seat_of(self, uid: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.uid == uid), None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"seats": [asdict(seat) for seat in self.seats]}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "Founding":
        """Raises KeyError, TypeError or ValueError when `raw` is not a founding record."""
        seats = tuple(
            Seat(str(s["node"]), str(s["uid"]), int(s["raft_id"]), str(s["voter_addr"]), str(s["api_addr"]))
            for s in raw["seats"]
        )
        founding = Founding(str(raw["cluster_id"]), int(raw["epoch"]), str(raw["profile"]), seats)
        if not founding.cluster_id or not seats or len({seat.raft_id for seat in seats}) != len(seats):
            raise ValueError("a founding record needs a cluster id and seats with ids of their own")
        return founding

    def roster(self) -> dict[str, Any]:
        """What the voter processes read."""
        return {
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "voters": [
                {"raft_id": seat.raft_id, "node": seat.node, "voter_addr": seat.voter_addr, "api_addr": seat.api_addr}
                for seat in self.seats
            ],
        }


@dataclass(frozen=True, slots=True)
class Waiting:
    have: int
    need: int


@dataclass(frozen=True, slots=True)
class Refusal:
    code: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class Gathering:
    """Who has asked for a seat, with the time of the last word (monotonic seconds), in order of arrival."""

    founder: Candidate
    wanted: int
    waiting: tuple[tuple[Candidate, float], ...] = ()

    def hear(self, candidate: Candidate, now_s: float) -> "tuple[Gathering, Waiting | Refusal]":
        live = tuple((c, at) for c, at in self.waiting if now_s - at <= CANDIDATE_SILENCE_S)
        for other in (self.founder, *(c for c, _ in live)):
            if other.uid == candidate.uid:
                continue
            if (refusal := clash(candidate, other.node_id, other.voter_addr, other.api_addr)) is not None:
                return replace(self, waiting=live), refusal
        if any(c.uid == candidate.uid for c, _ in live):
            live = tuple((candidate, now_s) if c.uid == candidate.uid else (c, at) for c, at in live)
        else:
            live = (*live, (candidate, now_s))
        gathering = replace(self, waiting=live)
        return gathering, Waiting(gathering.have, self.wanted)

    @property
    def have(self) -> int:
        return min(1 + len(self.waiting), self.wanted)

    @property
    def complete(self) -> bool:
        return 1 + len(self.waiting) >= self.wanted

    def freeze(self, cluster_id: str, profile: str, raft_ids: Sequence[int]) -> Founding:
        chosen = (self.founder, *(c for c, _ in self.waiting))[: self.wanted]
        seats = tuple(
            Seat(c.node_id, c.uid, raft_id, c.voter_addr, c.api_addr)
            for c, raft_id in zip(chosen, raft_ids, strict=True)
        )
        return Founding(cluster_id, 1, profile, seats)


def clash(candidate: Candidate, node_id: str, voter_addr: str, api_addr: str) -> Refusal | None:
    """Two hosts may share neither a name nor an address."""
    if candidate.node_id == node_id:
        return Refusal(
            "node_name_taken",
            f"the name {node_id} belongs to another host of this mesh (another installation id)",
            "start this agent with another --name, or bring back the data directory that had it",
        )
    if candidate.voter_addr == voter_addr or candidate.api_addr == api_addr:
        return Refusal(
            "address_taken",
            f"node {node_id} already has the address {voter_addr if candidate.voter_addr == voter_addr else api_addr}",
            "start this agent with another --api and --voter address",
        )
    return None


def seat_or_refusal(founding: Founding, candidate: Candidate) -> Seat | Refusal | None:
    """After the freeze: the candidate's own seat, a clash with one, or None (it may join as a member)."""
    if (seat := founding.seat_of(candidate.uid)) is not None:
        return seat
    clashes = (clash(candidate, seat.node, seat.voter_addr, seat.api_addr) for seat in founding.seats)
    return next((refusal for refusal in clashes if refusal is not None), None)
