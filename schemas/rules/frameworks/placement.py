"""Where one rank of an attempt stands: what only placement decides, and what a framework is given there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.limits import PORT_MAX, PORT_MIN

# Where a container sees the generated files.
FILES_IN_CONTAINER = "/heteroflow"


class PlacementIncomplete(Exception):
    """Is raised where a framework needs to know more of the placement than is known."""


@dataclass(frozen=True, slots=True)
class Placement:
    """addresses: of the nodes by rank, empty where only the first is known; master_port: None before placement;
    gpus: UUIDs of this rank's cards; interface: by which this
    node reaches rank 0's address, empty where that is not known; crosses_networks: the ranks meet at a public address,
    because the private one was not to be reached; parent_path: the directory that holds what to resume from, where it
    is another group's; files_dir: where the task sees the generated files."""

    group_id: str
    attempt: int | str
    rank: int
    nodes: int
    cards: int
    master_addr: str
    master_port: int | None
    addresses: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    simulated_gpus: bool = False
    checkpoint_path: str | None = None
    dataset_path: str | None = None
    base_checkpoint: str | None = None
    resume: str | None = None
    parent_path: str | None = None
    files_dir: str = FILES_IN_CONTAINER
    interface: str = ""
    crosses_networks: bool = False

    @property
    def world(self) -> int:
        return self.nodes * self.cards

    def address(self, rank: int) -> str:
        """Raises PlacementIncomplete."""
        if rank == 0:
            return self.master_addr
        if len(self.addresses) != self.nodes:
            raise PlacementIncomplete(
                f"the addresses of all {self.nodes} nodes are needed and only the first was given: the leader of the "
                "mesh is of an older version; update it and resubmit the group"
            )
        return self.addresses[rank]

    @property
    def own_address(self) -> str | None:
        """None where it is not known."""
        if self.rank == 0:
            return self.master_addr
        return self.addresses[self.rank] if len(self.addresses) == self.nodes else None

    def port(self, rank: int) -> str:
        """Of a framework that listens on every node."""
        if self.master_port is None:
            return f"<port of rank {rank}>"
        return str(port_of(self.master_port, rank))


def host_port(address: str, port: str) -> str:
    """An IPv6 address in brackets; placeholders of a rendered document stay as they are."""
    return f"[{address}]:{port}" if ":" in address and not address.startswith(("[", "<")) else f"{address}:{port}"


def port_of(master_port: int, rank: int) -> int:
    """Every rank another, so that nodes which share an address do not meet; rank 0 has the master port."""
    return PORT_MIN + (master_port - PORT_MIN + rank) % (PORT_MAX - PORT_MIN + 1)


@dataclass(frozen=True, slots=True)
class Given:
    """env: of the topology, which no user value beats; defaults: task.env beats them; files: text by name."""

    env: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
