"""What the scheduler looks at: immutable, so that a pass may run beside the loop while the state moves on. The reducer
re-verifies."""

from dataclasses import dataclass, field
from typing import Any

# Acceptable card types, cards of one node, whether it runs in containers, the ports it listens on, and when the last of
# the maintenance windows opens that it would run into (0: none).
Key = tuple[tuple[str, ...], int, bool, tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Card:
    uuid: str
    type: str
    index: int


@dataclass(frozen=True, slots=True)
class NodeView:
    """cards: all of the node; free: those without a hold, lowest index first; holds: how many cards each holder has,
    who gives them back at one time; cleaning: how many are releasing;
    ports: in use, for a rendezvous or declared; endless, endless_ports: of work that goes on until somebody stops it;
    tasks: how many have something there; penalty_score in thousandths, as of penalty_ms. containers: it runs every task
    as a container, and nothing else; engine_down: it could start none now; cordoned: an operator keeps new groups
    away; closes_ms: when groups will be moved away for announced maintenance."""

    node_id: str
    ready: bool
    cards: tuple[Card, ...]
    free: tuple[Card, ...]
    cleaning: int = 0
    ports: frozenset[int] = frozenset()
    penalty_score: int = 0
    penalty_ms: int = 0
    containers: bool = False
    engine_down: bool = False
    cordoned: bool = False
    endless: tuple[Card, ...] = ()
    endless_ports: frozenset[int] = frozenset()
    tasks: int = 0
    closes_ms: int | None = None
    holds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pending group. attempt: the last one, 0 before the first; reason: as it stands in the state; not_before_ms:
    it is to be tried or built again then, by the leader's stamps, counted from rests_since_ms; avoid: the node it
    failed on; runs_ms: how long it may still run, None where nobody said; tried: why its last attempt came to nothing,
    empty where it did not."""

    group_id: str
    name: str
    priority: int
    submit_idx: int
    attempt: int
    n_nodes: int
    per_node_gpu: int
    gpu_types: tuple[str, ...] = ()
    in_container: bool = False
    reason: dict[str, Any] | None = None
    tenant: str = ""
    ports: tuple[int, ...] = ()
    not_before_ms: int = 0
    rests_since_ms: int = 0
    avoid: str | None = None
    runs_ms: int | None = None
    tried: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """Order in the queue: priority, then the log index of the submission, which no two groups share."""
        return (-self.priority, self.submit_idx)


@dataclass(frozen=True, slots=True)
class MeshView:
    """paused: who paused scheduling and why, in words; None while it goes on."""

    nodes: tuple[NodeView, ...]
    queue: tuple[Waiting, ...]
    paused: str | None = None


@dataclass(frozen=True, slots=True)
class Bind:
    """placements: as in the BindGroup command."""

    group_id: str
    attempt: int
    placements: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """reasons: of every group looked at that has to wait; sentence: what this pass decided, for people."""

    binds: tuple[Bind, ...] = ()
    reasons: dict[str, dict[str, Any]] = field(default_factory=dict)
    sentence: str = ""
