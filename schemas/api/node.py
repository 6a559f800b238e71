"""Hosts, their cards, what operators ordered of them, and what their agents see of each other."""

from typing import TypedDict


class Card(TypedDict):
    """state: free, held, or releasing (ended, but not yet proved clean)."""

    uuid: str
    type: str
    memory_mb: int
    index: int
    state: str


class GossipView(TypedDict):
    """What the agent asked believes of a node, which decides nothing. state: alive, suspect, dead or left, since_s ago.
    addr: HOST:PORT. version: None where the node does not say."""

    state: str
    incarnation: int
    since_s: float
    addr: str
    version: str | None


class NodeDifference(TypedDict):
    """kind: only_log, only_gossip, state, uid, addr or version. text: what differs, and what follows from it."""

    node_id: str
    kind: str
    text: str


class Asked(TypedDict):
    """An operator's order that stands."""

    by: str
    reason: str
    at: str | None


class Drain(Asked):
    """mode: wait or move. groups: there when it began; left: that still have something on the node; moved: sent
    elsewhere. done_at: when the node was empty."""

    mode: str
    deadline_at: str | None
    groups: int
    left: int
    moved: int
    done_at: str | None


class Maintenance(Asked):
    """open: between from_at and until_at, by the leader's clock."""

    from_at: str | None
    until_at: str | None
    mode: str
    deadline_s: int
    open: bool


class MeshHold(Asked):
    """left_s: until nodes are given up again, as last written down by the leader. released: no lease is granted longer
    any more, but some that were still stand."""

    until_at: str | None
    left_s: int
    released: bool


class Held(TypedDict):
    until_at: str | None


class Released(TypedDict):
    """left_s: until the last of the longer leases has run out."""

    left_s: int


class NodeInService(TypedDict):
    node_id: str
    cordoned: bool


class Drained(NodeInService):
    """groups: how many there are to leave."""

    groups: int
    deadline_at: str | None


class Window(TypedDict):
    node_id: str
    from_at: str | None
    until_at: str | None


class NodeNamed(TypedDict):
    node_id: str


class GivenUp(NodeNamed):
    """groups: how many had a rank there that was not known to be gone."""

    groups: int


class Paused(TypedDict):
    paused: bool


class Node(TypedDict):
    """lease_age_ms: since the last renewal, known where the agent asked is with the leader. engine_down: why no
    container can be started there now; reason says so too where the node is ready. gossip: None where the agent asked
    knows nothing of it by gossip."""

    node_id: str
    state: str
    reason: str | None
    engine_down: str | None
    api_addr: str
    addresses: list[str]
    voter: bool
    gpu_backend: str
    runtime: str
    labels: dict[str, str]
    version: str
    cpus: int
    memory_mb: int
    joined_at: str | None
    lost_at: str | None
    losses: int
    gpus: list[Card]
    gpus_total: int
    gpus_free: int
    gpus_held: int
    gpus_releasing: int
    cordon: Asked | None
    drain: Drain | None
    maintenance: Maintenance | None
    lease_age_ms: int | None
    gossip: GossipView | None


class NodeList(TypedDict):
    """differences: where the log and gossip do not say the same; [] while gossip does not run."""

    nodes: list[Node]
    differences: list[NodeDifference]
    cursor: str | None


class GossipMember(GossipView):
    node_id: str


class GossipList(TypedDict):
    """members: as the agent asked sees them, itself too."""

    members: list[GossipMember]
    differences: list[NodeDifference]
    cursor: str | None
